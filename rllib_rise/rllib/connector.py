"""Our connector pieces: the bonus on the learner's batch, a filter for what policies act on."""

from __future__ import annotations

from typing import Any

import torch
import tree  # type: ignore[import-untyped]
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_rise.rllib.runtime import IntrinsicRuntime
from rllib_rise.rllib.transitions import Chunk, chunk_of

_CHUNKS = "rllib_rise_chunks"


class IntrinsicRewardConnector(ConnectorV2):
    """Adds the intrinsic reward to each module's tensors, before advantages are computed.

    Sits behind `NumpyToTensor`. It never touches the episodes: returns that RLlib reports stay
    purely extrinsic.
    """

    def __init__(self, runtime: IntrinsicRuntime) -> None:
        super().__init__()
        self._runtime = runtime

    def __call__(
        self,
        *,
        rl_module: MultiRLModule,
        batch: dict[str, Any],
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: MetricsLogger | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Run the bonus of every module."""
        chunks = (shared_data or {}).get(_CHUNKS)
        self._runtime.apply_all(batch, rl_module, metrics, chunks)
        return batch


class EpisodesConnector(ConnectorV2):
    """Notes which episodes a batch is made of, for the bonuses that tell them apart.

    Comes first: later RLlib renames episodes and marks them all as truncated.
    """

    def __call__(
        self,
        *,
        batch: dict[str, Any],
        episodes: list[Any],
        shared_data: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """List the chunks of each module."""
        assert shared_data is not None
        chunks: dict[str, list[Chunk]] = {}
        for episode in self.single_agent_episode_iterator(episodes, False):
            module_id = episode.module_id or DEFAULT_MODULE_ID
            chunks.setdefault(module_id, []).append(chunk_of(episode))
        shared_data[_CHUNKS] = chunks
        return batch


class FiniteInputsConnector(ConnectorV2):
    """Lets the policy act on 0 where an observation is NaN or infinite.

    The observation itself stays in the episode as it is, so that the learner stops with a named
    error. Raising here would not do: RLlib kills a remote env runner that raises and trains on
    without it, and left alone the policy would stop with an error about probabilities.
    """

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Replace what is not finite in the policy's input."""
        for part in (batch,) if Columns.OBS in batch else batch.values():
            if Columns.OBS in part:
                part[Columns.OBS] = tree.map_structure(_finite, part[Columns.OBS])
        return batch


def _finite(obs: Any) -> Any:
    if isinstance(obs, torch.Tensor) and obs.is_floating_point():
        return torch.nan_to_num(obs, nan=0.0, posinf=0.0, neginf=0.0)
    return obs
