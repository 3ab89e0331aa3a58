"""Our connector pieces: the bonus on the learner's batch, a filter for what policies act on."""

from __future__ import annotations

from typing import Any

import torch
import tree  # type: ignore[import-untyped]
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_rise.rllib.runtime import IntrinsicRuntime


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
        self._runtime.apply_all(batch, rl_module, metrics)
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
