"""RIDE: rewarding impact-driven exploration (Raileanu and Rocktäschel 2020).

1. Features phi are learned by inverse and forward dynamics, as in ICM.
2. The bonus is the change that an action has made, || phi(s_{t+1}) - phi(s_t) ||, over the root of
   the visits to s_{t+1} in this episode, this one included.
3. States are the same where they lie in the same cell of a grid. Episodes that go on in the next
   batch keep their counts.

Departures: as for ICM; the paper weighs the inverse loss 0.1 and the forward loss 10 beside the
policy's, here beta does; counts are exact but for cells of the grid.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from pydantic import Field
from torch import Tensor

from rllib_rise.bonuses.dynamics import Dynamics
from rllib_rise.bonuses.episodes import EpisodicMemory, visits_so_far
from rllib_rise.bonuses.hashing import cell_codes
from rllib_rise.bonuses.icm import ICMSettings
from rllib_rise.bonuses.protocol import Bonus, Need, Transitions
from rllib_rise.bonuses.registry import register_bonus


class RIDESettings(ICMSettings):
    """Settings of impact-driven exploration."""

    cell: float = Field(
        0.05,
        gt=0,
        description="Width of the cells in which visits are counted, in units of the "
        "observation; bytes are 0 to 1.",
    )


@register_bonus
class RIDE(Bonus):
    """The impact of an action, discounted by the episode's visits to where it led."""

    name = "ride"
    Settings = RIDESettings

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
        self.memory = EpisodicMemory()
        self._visits = 1.0

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """Whole transitions, episodes across batches, and models that learn."""
        return frozenset({Need.NEXT_OBS, Need.ACTIONS, Need.WHOLE_EPISODES, Need.LEARNING})

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """Impact over the root of the visits."""
        assert batch.episode_ids is not None
        phi, phi_next = self.dynamics.embed(batch)
        first, visited = self._codes(batch)
        ids, codes = self.memory.recall(batch, first)
        everything = visits_so_far(torch.cat([ids, batch.episode_ids]), torch.cat([codes, visited]))
        visits = everything[len(ids) :].to(phi.dtype)
        self._visits = float(visits.mean()) if len(visits) else 1.0
        return (phi_next - phi).norm(dim=1) * visits.rsqrt()

    def update(self, batch: Transitions) -> None:
        """Remember the visits, then teach the models this batch."""
        self.memory.remember(batch, *self._codes(batch))
        self.dynamics.update(batch)

    def nbytes(self) -> int:
        """With the memory of the episodes."""
        return super().nbytes() + self.memory.nbytes

    def metrics(self) -> dict[str, float]:
        """Losses of the last minibatch, and mean visits of an episode to its states."""
        return {
            "ride_inverse_loss": self.dynamics.inverse_loss,
            "ride_forward_loss": self.dynamics.forward_loss,
            "ride_visits": self._visits,
        }

    def _codes(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        assert batch.next_obs is not None
        cell = self.settings.cell
        return cell_codes(batch.obs, cell), cell_codes(batch.next_obs, cell)
