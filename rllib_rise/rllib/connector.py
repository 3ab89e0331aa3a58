"""Our connector pieces: the bonus on the learner's batch, a check of what env runners observe."""

from __future__ import annotations

from typing import Any

from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_rise.rllib.runtime import IntrinsicRuntime, check_finite


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
        """Run the bonus of every module in the batch, in sorted order on all learners."""
        for module_id in sorted(batch):
            module = rl_module[module_id].unwrapped()
            self._runtime.apply(module_id, batch[module_id], module, metrics)
        return batch


class FiniteObservationsConnector(ConnectorV2):
    """Stops at NaN or infinite observations with module and count.

    Sits at the end of the env runners' pipeline: without it, the policy would stop there with an
    error about probabilities, and the learner would never get to see what was wrong.
    """

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Check and pass on."""
        single = Columns.OBS in batch
        for module_id, part in {"default_policy": batch}.items() if single else batch.items():
            check_finite(module_id, part.get(Columns.OBS))
        return batch
