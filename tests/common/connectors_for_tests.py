"""A connector of a user's."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.env_to_module.observation_preprocessor import (
    SingleAgentObservationPreprocessor,
)
from torch import Tensor

SHIFT = 1000.0


class Shift(SingleAgentObservationPreprocessor):
    """Moves all observations far away."""

    def recompute_output_observation_space(
        self, input_observation_space: gym.Space, input_action_space: gym.Space
    ) -> gym.Space:
        return gym.spaces.Box(SHIFT / 2, 2 * SHIFT, input_observation_space.shape, np.float32)

    def preprocess(self, observation: Any, episode: Any) -> Any:
        return (observation + SHIFT).astype(np.float32)


def shifted(obs: Tensor) -> Tensor:
    """A state function that insists on what the connector makes."""
    assert bool((obs > SHIFT / 2).all()), "the encoder does not see what the policy sees"
    return obs
