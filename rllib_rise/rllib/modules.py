"""RLlib's default PPO networks, taught to take images as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.columns import Columns
from torch import Tensor

from rllib_rise.encoders.base import as_float


class PPOModule(DefaultPPOTorchRLModule):
    """Casts uint8 observations to [0, 1] on the device; anything else passes as it is.

    RLlib's convolutions refuse bytes, and floats take four times the memory on every way.
    """

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return super()._forward(_with_float_obs(batch), **kwargs)

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return super()._forward_train(_with_float_obs(batch), **kwargs)

    def compute_values(self, batch: Mapping[str, Any], embeddings: Any = None) -> Tensor:
        """The critic's values."""
        if embeddings is None:
            batch = _with_float_obs(batch)
        return super().compute_values(batch, embeddings)


def _with_float_obs(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {**batch, Columns.OBS: as_float(batch[Columns.OBS])}
