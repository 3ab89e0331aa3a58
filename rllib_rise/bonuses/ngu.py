"""NGU: never give up (Badia et al. 2020), its intrinsic reward.

1. Features are learned by an inverse model: what the agent can influence.
2. A memory holds the features of the episode's states. d_i are the squared distances of s_{t+1} to
   its k nearest of them, d_m is the running mean of such. The kernel is near 1 for neighbours that
   are as good as equal:

       K_i = epsilon / (max(d_i / d_m - xi, 0) + epsilon)
       episodic bonus = 1 / (sqrt(sum_i K_i) + c),  or 0 where the root and c exceed s_m

3. It is multiplied by the life-long novelty min(max(1 + (e - mean(e)) / std(e), 1), L), e the error
   of RND on s_{t+1} with its running moments.

Constants are those of the paper's table: epsilon 0.0001, c 0.001, xi 0.008, s_m 8, L 5, k 10.

Departures: of an episode the latest `memory_size` states are remembered. d_m moves once per batch,
by a hundredth of the way to the batch's mean. Neighbours that an episode does not have yet count as
ones at the mean distance: taken as absent, as printed, the first step of an episode would earn
thirty times as much as a later one among strangers. One policy is trained with one weight lambda_0;
the paper's family of policies, from exploiting to exploring, is another algorithm.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import torch
from pydantic import Field
from torch import Tensor

from rllib_rise.bonuses.dynamics import Dynamics, DynamicsSettings
from rllib_rise.bonuses.episodes import EpisodicMemory
from rllib_rise.bonuses.moments import standardized
from rllib_rise.bonuses.protocol import Bonus, Need, Transitions
from rllib_rise.bonuses.registry import parse_settings, register_bonus
from rllib_rise.bonuses.rnd import RND

_EPSILON = 0.0001
_C = 0.001
_XI = 0.008
_MOST_SIMILAR = 8.0
_RATE = 0.01


class NGUSettings(DynamicsSettings):
    """Settings of the never-give-up bonus."""

    embedding_size: int = Field(32, ge=1, description="Dimension of the features.")
    k: int = Field(10, ge=1, description="Neighbours that count in the episode's memory.")
    memory_size: int = Field(
        5_000, ge=1, description="States of an episode that are compared with, the latest."
    )
    most_novel: float = Field(5.0, ge=1, description="The largest life-long factor, L.")
    rnd_lr: float = Field(1e-4, gt=0, description="Adam's step size for RND's predictor.")


@register_bonus
class NGU(Bonus):
    """Novelty within the episode times novelty over life."""

    name = "ngu"
    Settings = NGUSettings
    logged: ClassVar = {
        "ngu_episodic": "mean of the factor for novelty within the episode",
        "ngu_lifelong": "mean of the factor for novelty over life",
        "ngu_inverse_loss": "of the last minibatch",
        "ngu_rnd_loss": "the predictor's mean error in its last pass over the batch",
    }
    mean_square: Tensor

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
            settings, self.obs_shape, action_space, method=self.name, beta=0.0, seed=seed
        )
        rnd_settings = parse_settings(
            RND,
            {
                "lr": settings.rnd_lr,
                "epochs": settings.epochs,
                "minibatch_size": settings.minibatch_size,
            },
        )
        self.rnd = RND(rnd_settings, self.obs_shape, seed=seed + 1)
        self.register_buffer("mean_square", torch.zeros((), dtype=torch.float64))
        self.memory = EpisodicMemory(settings.memory_size)
        self._squares: Tensor | None = None
        self._features: tuple[Tensor, Tensor] | None = None
        self._figures: dict[str, float] = {}

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """Whole transitions, episodes across batches, and models that learn."""
        return frozenset({Need.NEXT_OBS, Need.ACTIONS, Need.WHOLE_EPISODES, Need.LEARNING})

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """The episodic bonus times the life-long factor."""
        self._features = self.dynamics.embed(batch)
        self._squares = self._neighbors(batch, *self._features)
        episodic = self._episodic(self._squares)
        novelty = 1 + standardized(self.rnd.errors(batch), self.rnd.error_moments)
        factor = novelty.clamp(1, self.settings.most_novel)
        if len(factor):
            self._figures = {
                "ngu_episodic": float(episodic.mean()),
                "ngu_lifelong": float(factor.mean()),
            }
        return episodic * factor

    def update(self, batch: Transitions) -> None:
        """Remember the states, then teach the models this batch."""
        if self._squares is not None and self._features is not None:
            phi, phi_next = self._features
            self.mean_square.copy_(self._moved(self._squares))
            self.memory.remember(batch, phi.__getitem__, phi_next)
        self.dynamics.update(batch)
        self.rnd.update(batch)

    def nbytes(self) -> int:
        """With the memory of the episodes."""
        return super().nbytes() + self.memory.nbytes

    def metrics(self) -> dict[str, float]:
        """The two factors' means, and the models' losses."""
        return {
            **self._figures,
            "ngu_inverse_loss": float(self.dynamics.inverse_loss),
            **{f"ngu_{name}": value for name, value in self.rnd.metrics().items()},
        }

    def _episodic(self, squares: Tensor) -> Tensor:
        """From `[N, k]` squared distances, infinite where there is no such neighbour."""
        finite = squares.isfinite()
        mean = self.mean_square if bool(self.mean_square > 0) else self._moved(squares)
        if not bool(mean > 0):
            mean = torch.ones_like(mean)
        scaled = torch.where(finite, squares / mean.to(squares.dtype), 1.0)
        kernel = _EPSILON / ((scaled - _XI).clamp(min=0) + _EPSILON)
        similarity = kernel.sum(1).sqrt() + _C
        return torch.where(similarity > _MOST_SIMILAR, 0.0, 1 / similarity)

    def _moved(self, squares: Tensor) -> Tensor:
        """The running mean with this batch; at first, that of the batch."""
        known = squares[squares.isfinite()].double()
        if len(known) == 0:
            return self.mean_square
        if not bool(self.mean_square > 0):
            return known.mean()
        return self.mean_square + _RATE * (known.mean() - self.mean_square)

    def _neighbors(self, batch: Transitions, phi: Tensor, phi_next: Tensor) -> Tensor:
        """Squared distances of each s_{t+1} to its k nearest earlier states, `[N, k]`.

        Episode by episode: the matrix of its steps and its memory is the largest that is made.
        """
        ids, k = batch.episode_ids, self.settings.k
        assert ids is not None
        memory_ids, memory = self.memory.recall(batch, phi.__getitem__)
        found = phi_next.new_full((len(ids), k), torch.inf)
        for episode in torch.unique(ids):
            rows = (ids == episode).nonzero().squeeze(1)
            before = memory[memory_ids == episode]
            visited = torch.cat([before, phi_next[rows]])
            # Exact: the product form would tell equal states apart.
            squares = torch.cdist(
                phi_next[rows], visited, compute_mode="donot_use_mm_for_euclid_dist"
            ).square()
            step = torch.arange(len(rows), device=ids.device)
            later = torch.arange(len(visited), device=ids.device) - len(before) >= step[:, None]
            squares.masked_fill_(later, torch.inf)
            nearest = squares.topk(min(k, len(visited)), largest=False).values
            found[rows, : nearest.shape[1]] = nearest
        return found
