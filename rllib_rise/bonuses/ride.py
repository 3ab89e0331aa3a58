"""RIDE: rewarding impact-driven exploration (Raileanu and Rocktäschel 2020).

1. Features phi are learned by inverse and forward dynamics, as in ICM.
2. The bonus is the change that an action has made, || phi(s_{t+1}) - phi(s_t) ||, over the root of
   the visits to s_{t+1} in this episode, this one included.
3. States are the same where they lie in the same cell of a grid. Episodes that go on in the next
   batch keep their counts.

Departures: as for ICM. The authors' weights of the losses, 10 for the forward and 0.1 for the
inverse one, are a beta of 0.99. Of all unfinished episodes together the latest million steps are
remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

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

    beta: float = Field(
        0.99, gt=0, lt=1, description="Weight of the forward loss; the inverse has the rest."
    )
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
    logged: ClassVar = {
        "ride_inverse_loss": "of the last minibatch",
        "ride_forward_loss": "of the last minibatch",
        "ride_visits": "mean number of visits; the bonus is divided by its root",
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
        self.memory = EpisodicMemory()
        self._visited: Tensor | None = None
        self._visits = 1.0

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """Whole transitions, episodes across batches, and models that learn."""
        return frozenset({Need.NEXT_OBS, Need.ACTIONS, Need.WHOLE_EPISODES, Need.LEARNING})

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """Impact over the root of the visits."""
        assert batch.episode_ids is not None
        assert batch.next_obs is not None
        phi, phi_next = self.dynamics.embed(batch)
        self._visited = cell_codes(batch.next_obs, self.settings.cell)
        ids, codes = self.memory.recall(batch, self._first(batch))
        everything = visits_so_far(
            torch.cat([ids, batch.episode_ids]), torch.cat([codes, self._visited])
        )
        visits = everything[len(ids) :].to(phi.dtype)
        self._visits = float(visits.mean()) if len(visits) else 1.0
        return (phi_next - phi).norm(dim=1) * visits.rsqrt()

    def update(self, batch: Transitions) -> None:
        """Remember the visits, then teach the models this batch."""
        if self._visited is not None:
            self.memory.remember(batch, self._first(batch), self._visited)
        self.dynamics.update(batch)

    def nbytes(self) -> int:
        """With the memory of the episodes."""
        return super().nbytes() + self.memory.nbytes

    def metrics(self) -> dict[str, float]:
        """Losses of the last minibatch, and mean visits of an episode to its states."""
        return {
            "ride_inverse_loss": float(self.dynamics.inverse_loss),
            "ride_forward_loss": float(self.dynamics.forward_loss),
            "ride_visits": self._visits,
        }

    def _first(self, batch: Transitions) -> Callable[[Tensor], Tensor]:
        return lambda rows: cell_codes(batch.obs[rows], self.settings.cell)
