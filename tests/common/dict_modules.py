"""Modules of a user's for observations that are dicts: RLlib's networks behind a flattening."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from ray.rllib.core.columns import Columns
from torch import Tensor

from rllib_rise.rllib.modules import APPOModule, DQNModule, PPOModule, SACModule


def place(obs: dict[str, Tensor]) -> Tensor:
    """What counts as state in these observations: all but the noise."""
    return obs["place"]


def first_two(obs: Tensor) -> Tensor:
    return obs[:, :2]


def _flat(batch: dict[str, Any]) -> dict[str, Any]:
    return {
        key: torch.cat([value[name] for name in sorted(value)], dim=-1)
        if key in (Columns.OBS, Columns.NEXT_OBS) and isinstance(value, dict)
        else value
        for key, value in batch.items()
    }


class _Flattens:
    def __init__(self, *args: Any, observation_space: gym.Space, **kwargs: Any) -> None:
        flat = gym.spaces.flatten_space(observation_space)
        super().__init__(*args, observation_space=flat, **kwargs)
        self.observation_space = observation_space

    def _forward(self, batch, **kwargs):
        return super()._forward(_flat(batch), **kwargs)

    def _forward_train(self, batch, **kwargs):
        return super()._forward_train(_flat(batch), **kwargs)

    def _forward_inference(self, batch, **kwargs):
        return super()._forward_inference(_flat(batch), **kwargs)

    def _forward_exploration(self, batch, **kwargs):
        return super()._forward_exploration(_flat(batch), **kwargs)

    def forward_target(self, batch, **kwargs):
        return super().forward_target(_flat(batch), **kwargs)

    def compute_values(self, batch, embeddings=None):
        return super().compute_values(_flat(batch), embeddings)


class DictPPO(_Flattens, PPOModule):
    pass


class DictAPPO(_Flattens, APPOModule):
    pass


class DictDQN(_Flattens, DQNModule):
    pass


class DictSAC(_Flattens, SACModule):
    pass


MODULES = {
    "PPO": DictPPO,
    "IMPALA": DictPPO,
    "APPO": DictAPPO,
    "DQN": DictDQN,
    "SAC": DictSAC,
}
