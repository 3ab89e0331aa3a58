"""The protocol every intrinsic reward follows. Whatever runs a bonus knows only this file.

A bonus is a small `torch.nn.Module`: whatever it must remember (weights, running moments, counts)
is a parameter or a buffer, and so is saved, restored and moved between devices without further
work. Its settings are a pydantic model; they are not state, so a new config wins over a checkpoint.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator
from torch import Tensor, nn

from rllib_rise.errors import ConfigError


class Need(Enum):
    """What a bonus may ask of the algorithm beyond the observations."""

    NEXT_OBS = "next observations"
    ACTIONS = "actions"
    EPISODES = "the order of transitions within episodes"
    WHOLE_EPISODES = "episodes that can be told apart across batches"
    LEARNING = "a model that learns at every update"
    RUNNING = "running statistics over all batches"
    POLICY = "the distributions that actions were drawn from"


@dataclass(frozen=True)
class Transitions:
    """N transitions of one module, where they lie on the learner's device. Read, never written.

    Attributes:
        obs: s_t, `[N, *obs_shape]`.
        next_obs: s_{t+1}, likewise; given if the bonus needs it.
        actions: a_t, `[N, ...]`; given if needed.
        episodes: number of the episode chunk that each transition belongs to, `[N]`, transitions
            of a chunk in their order; given if needed.
        episode_ids: a number for each transition's episode that stays the same in all its chunks,
            `[N]`, transitions of an episode in their order; given if whole episodes are needed.
        steps: t, counted from the start of the episode, `[N]`; given with `episode_ids`.
        done: whether the episode is over with this transition, `[N]`; likewise.
    """

    obs: Tensor
    next_obs: Tensor | None = None
    actions: Tensor | None = None
    episodes: Tensor | None = None
    episode_ids: Tensor | None = None
    steps: Tensor | None = None
    done: Tensor | None = None

    def __len__(self) -> int:
        return len(self.obs)

    def __getitem__(self, rows: Tensor) -> Transitions:
        """Some of them, or all in another order."""
        return Transitions(**{name: tensor[rows] for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Those that are given, by name."""
        named = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: tensor for name, tensor in named if tensor is not None}


@dataclass(frozen=True)
class Fit:
    """The result of Phase 1: everything that `Bonus.adopt` needs.

    Attributes:
        tensors: On the CPU; kept in the cache of fits.
        info: Plain data about the fit (losses, seconds), kept beside them.
    """

    tensors: dict[str, Tensor]
    info: dict[str, Any] = field(default_factory=dict)


FitSteps = Generator[str, None, Fit]
"""A fit under way: yields a line of progress now and then, returns the `Fit`."""


@dataclass(frozen=True)
class FitReport:
    """What a bonus tells of its Phase 1.

    Attributes:
        figures: Plain data; `seconds` maps the parts of the work to the time they took.
        arrays: Numpy arrays for pictures.
        files: Contents by file name, kept in the run directory.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


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
    standardize: bool | Literal["batch"] = Field(
        False,
        description="Bring r_hat to mean 0 and deviation 1: true by those of all batches before, "
        "batch by those of each batch.",
    )
    shuffle: bool = Field(
        False,
        description="A control: give each batch's r_hat to its transitions in random order.",
    )
    n_step_scaling: bool = Field(
        False,
        description="Allow n-step returns (DQN, SAC) by giving all n steps the first one's r_hat.",
    )
    modules: list[str] | None = Field(
        None, description="The modules that get the bonus; all that are trained by default."
    )
    state: Callable[[Any], Tensor] | None = Field(
        None,
        description="A function (in YAML package.module:name) from a batch of observations, dicts "
        "and tuples of tensors too, to the part that counts as state, one tensor [N, ...].",
    )

    @field_validator("state", mode="before")
    @classmethod
    def _import_state(cls, value: Any) -> Any:
        return import_object(value, "intrinsic.state") if isinstance(value, str) else value

    @field_serializer("state")
    def _name_state(self, value: Any) -> str | None:
        if value is None:
            return None
        name = getattr(value, "__qualname__", None)
        return repr(value) if name is None else f"{value.__module__}:{name}"

    def weight(self, time: Callable[[str], int]) -> float:
        """lambda_t; `time` reads a clock."""
        return self.lambda_0 * (1 - self.kappa) ** time(self.clock)

    def clocks(self) -> frozenset[str]:
        """The clocks in use."""
        return frozenset({self.clock})

    def needs(self) -> frozenset[Need]:
        """What the algorithm must supply for these settings, whatever the method."""
        wanted = {Need.POLICY: self.zeta > 0, Need.RUNNING: self.standardize is True}
        return frozenset(need for need, is_wanted in wanted.items() if is_wanted)


class Bonus(nn.Module):
    """An intrinsic reward: one value per transition.

    Subclasses set `name`, `Settings`, and implement `reward`; the rest where they have a use for
    it. `reward` reads the state and must not change it: for the same state and batch it gives the
    same values. `update` is called once after it with the same batch, and is where running moments
    move and models learn.

    A bonus with a Phase 1 says so by `warmup_steps`. Before the first update, that many steps are
    taken with the initial policy, `fit` is called with their observations on one learner, `adopt`
    with what it returned (or with what an earlier run's `fit` did, if nothing of `fit_settings`
    differs), and the state is copied to all learners.

    A bonus that needs actions is given the `action_space` by that name when it is made.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[BonusSettings]] = BonusSettings
    #: What `metrics` returns, and what each figure means; {name} stands for the bonus' name.
    logged: ClassVar[Mapping[str, str]] = {}
    #: With several learners, each has a part of the batch. By default `reward` and `update` are
    #: called with all of it on each of them, and so come to the same state. A bonus that can do
    #: with less than the observations gets its own part, and gathers what it needs itself.
    gathers: ClassVar[bool] = False

    def __init__(self, settings: Any, obs_shape: tuple[int, ...], *, seed: int = 0) -> None:
        super().__init__()
        self.settings = settings
        self.obs_shape = tuple(obs_shape)
        self.seed = seed
        #: `[n, ...] -> [N, ...]` of all learners, and this learner's rows in it; for bonuses
        #: that gather. Whoever runs several learners sets it.
        self.gather: Callable[[Tensor], tuple[Tensor, slice]] = _alone
        #: What t is in a clock's unit; whoever runs the bonus sets it.
        self.time: Callable[[str], int] = _at_the_start

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

    @classmethod
    def warmup_steps(cls, settings: Any, obs_shape: tuple[int, ...]) -> int:
        """Environment steps that Phase 1 takes, over all environments; 0 where there is none."""
        return 0

    @classmethod
    def fit_settings(cls, settings: Any, obs_shape: tuple[int, ...]) -> dict[str, Any]:
        """What `fit` depends on, as plain data. Runs that agree in it may share one fit.

        Called before any step is taken: the place to raise where the settings cannot work.
        """
        return settings.model_dump(mode="json")

    @property
    def fitted(self) -> bool:
        """False as long as Phase 1 has to run before the first reward."""
        return True

    def fit(self, obs: Tensor) -> FitSteps:
        """Learn from the observations `[N, *obs_shape]` of Phase 1, which are on the CPU.

        Depends on them, on `fit_settings` and on the seed alone; where a restored state holds a
        part of what is to be learned, on that too.
        """
        raise NotImplementedError
        yield ""

    def adopt(self, fit: Fit) -> FitReport:
        """Take over a fit; afterwards the bonus is `fitted`."""
        raise NotImplementedError

    def reward(self, batch: Transitions) -> Tensor:
        """The bonus r_hat of each transition, `[N]`, finite, before lambda."""
        raise NotImplementedError

    def update(self, batch: Transitions) -> None:
        """Learn from the batch that was just rewarded."""

    def metrics(self) -> dict[str, float]:
        """Figures about the last batch, logged beside the reward."""
        return {}

    def choices(self) -> dict[str, Any]:
        """What was chosen for this machine, as plain data; kept in the checkpoint beside the state.

        Choices make a difference to speed, not to what a bonus is: nothing depends on them.
        """
        return {}

    def prefer(self, choices: Mapping[str, Any]) -> None:
        """Choose the same as a checkpoint says, where that is possible here."""

    def nbytes(self) -> int:
        """Bytes that are kept from batch to batch: weights, optimizers' moments, memories."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.state_dict().values())


def _alone(values: Tensor) -> tuple[Tensor, slice]:
    return values, slice(None)


def _at_the_start(unit: str) -> int:
    return 0


def import_object(path: str, setting: str) -> Any:
    """What a setting means by `package.module:name`."""
    module_name, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{setting}={path!r} cannot be imported: {error}. Write package.module:name; it must "
            "be importable where the learner runs: start from the folder that holds it, or install "
            "it"
        ) from error
