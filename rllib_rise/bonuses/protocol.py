"""The protocol every intrinsic reward follows. Whatever runs a bonus knows only this file.

A bonus is a small `torch.nn.Module`: whatever it must remember (weights, running moments, counts)
is a parameter or a buffer, and so is saved, restored and moved between devices without further
work. Its settings are a pydantic model; they are not state, so a new config wins over a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn


class Need(Enum):
    """What a bonus may ask of the algorithm beyond the observations."""

    NEXT_OBS = "next observations"
    ACTIONS = "actions"
    EPISODES = "the order of transitions within episodes"
    LEARNING = "a model that learns at every update"


@dataclass(frozen=True)
class Transitions:
    """N transitions of one module, where they lie on the learner's device. Read, never written.

    Attributes:
        obs: s_t, `[N, *obs_shape]`.
        next_obs: s_{t+1}, likewise; given if the bonus needs it.
        actions: a_t, `[N, ...]`; given if needed.
        episodes: number of the episode chunk that each transition belongs to, `[N]`, transitions
            of a chunk in their order; given if needed.
    """

    obs: Tensor
    next_obs: Tensor | None = None
    actions: Tensor | None = None
    episodes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.obs)


class BonusSettings(BaseModel):
    """Settings that every method has: how the bonus r_hat enters the reward.

    r_total = r + lambda_t r_hat(s_t) + zeta H(pi(. | s_t)),  lambda_t = lambda_0 (1 - kappa)^t
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    lambda_0: float = Field(0.1, ge=0, description="Weight of the bonus at the start.")
    kappa: float = Field(0.0, ge=0, lt=1, description="Decay of the weight per tick of the clock.")
    clock: Literal["env_steps", "updates"] = Field(
        "env_steps", description="What t counts: environment steps sampled before, or updates."
    )
    zeta: float = Field(
        0.0, ge=0, description="Weight of the policy's entropy as a reward (on-policy only)."
    )


class Bonus(nn.Module):
    """An intrinsic reward: one value per transition.

    Subclasses set `name`, `Settings`, and implement `reward`; the rest where they have a use for
    it. `reward` reads the state and must not change it: for the same state and batch it gives the
    same values. `update` is called once after it with the same batch, and is where running moments
    move and models learn.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[BonusSettings]] = BonusSettings

    def __init__(self, settings: Any, obs_shape: tuple[int, ...], *, seed: int = 0) -> None:
        super().__init__()
        self.settings = settings
        self.obs_shape = tuple(obs_shape)
        self.seed = seed

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """What the algorithm must supply under these settings."""
        return frozenset()

    @classmethod
    def check_batch(cls, settings: Any, *, batch_size: int, chunk_size: int | None) -> None:
        """Raise a `ConfigError` where the settings cannot work with batches of this size.

        Args:
            settings: The method's settings.
            batch_size: Transitions in one batch.
            chunk_size: Transitions of one environment in a batch, where that is fixed.
        """

    def reward(self, batch: Transitions) -> Tensor:
        """The bonus r_hat of each transition, `[N]`, finite, before lambda."""
        raise NotImplementedError

    def update(self, batch: Transitions) -> None:
        """Learn from the batch that was just rewarded."""

    def metrics(self) -> dict[str, float]:
        """Figures about the last batch, logged beside the reward."""
        return {}
