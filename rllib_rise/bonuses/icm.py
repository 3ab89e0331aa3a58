"""ICM: the intrinsic curiosity module (Pathak et al. 2017).

1. Features phi are learned by an inverse model, which predicts the action from phi(s_t) and
   phi(s_{t+1}), so that they leave out what the agent cannot influence.
2. A forward model predicts phi(s_{t+1}) from phi(s_t) and the action. The bonus is half its squared
   error: transitions that were seen often are predicted well.
3. Both are trained together on (1 - beta) L_inverse + beta L_forward, beta = 0.2 as in the paper,
   after the batch was rewarded.

Departures: observations are whitened by running moments; the paper's policy loss is not part of the
model's objective (its weight lambda), nor is there a gradient from the policy; continuous actions
are predicted by a Gaussian. The paper's factor eta is lambda_0.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import torch
from pydantic import Field
from torch import Tensor

from rllib_rise.bonuses.dynamics import Dynamics, DynamicsSettings
from rllib_rise.bonuses.protocol import Bonus, Need, Transitions
from rllib_rise.bonuses.registry import register_bonus


class ICMSettings(DynamicsSettings):
    """Settings of the intrinsic curiosity module."""

    beta: float = Field(
        0.2, gt=0, lt=1, description="Weight of the forward loss; the inverse has the rest."
    )


@register_bonus
class ICM(Bonus):
    """The error of a forward model in features that an inverse model has learned."""

    name = "icm"
    Settings = ICMSettings
    logged: ClassVar = {
        "icm_inverse_loss": "of the last minibatch",
        "icm_forward_loss": "of the last minibatch",
    }

    def __init__(
        self,
        settings: Any,
        obs_shape: tuple[int, ...],
        *,
        seed: int = 0,
        action_space: gym.Space | None = None,
    ) -> None:
        super().__init__(settings, obs_shape, seed=seed)
        self.dynamics = Dynamics(
            settings, self.obs_shape, action_space, method=self.name, beta=settings.beta, seed=seed
        )

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """Whole transitions, and models that learn."""
        return frozenset({Need.NEXT_OBS, Need.ACTIONS, Need.LEARNING})

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """The forward model's error."""
        return self.dynamics.errors(batch)

    def update(self, batch: Transitions) -> None:
        """Teach both models this batch."""
        self.dynamics.update(batch)

    def metrics(self) -> dict[str, float]:
        """Losses of the last minibatch."""
        return {
            "icm_inverse_loss": float(self.dynamics.inverse_loss),
            "icm_forward_loss": float(self.dynamics.forward_loss),
        }
