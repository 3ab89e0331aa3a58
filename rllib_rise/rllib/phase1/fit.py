"""The learner's part of Phase 1: observations in, a fitted bonus per module out.

All functions take the learner first, are called through `LearnerGroup.foreach_learner` and give
errors of ours as values.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
import torch
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from torch import Tensor

from rllib_rise.bonuses import Fit, FitReport
from rllib_rise.errors import ConfigError, RiseError
from rllib_rise.rllib.phase1.cache import FitCache
from rllib_rise.rllib.phase1.digest import digest
from rllib_rise.rllib.transitions import select_transitions

logger = logging.getLogger(__name__)


def errors_as_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return our errors: one that is raised would cost the learner its place in the group."""

    @functools.wraps(function)
    def wrapped(learner: Any, **kwargs: Any) -> Any:
        try:
            return function(learner, **kwargs)
        except RiseError as error:
            return error

    return wrapped


class Fitting:
    """A Phase 1 under way on one learner."""

    def __init__(self, learner: Any, capacity: int) -> None:
        self._learner = learner
        self._capacity = capacity
        self._modules = learner.intrinsic.unfitted()
        self._observations: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._steps: Any = None
        self.fits: dict[str, Fit] = {}
        # As in training, but for what the algorithm adds to it: user's pieces, batching, mapping.
        self._pipeline = learner.config.build_learner_connector(
            input_observation_space=None, input_action_space=None, device="cpu"
        )

    def add(self, episodes: list[Any]) -> None:
        """Copy the observations of these episodes, as the learner would see them."""
        if not episodes:
            return
        batch = self._pipeline(
            rl_module=self._learner.module,
            batch={},
            episodes=episodes,
            shared_data={},
            metrics=MetricsLogger(root=False),
        )
        for module_id in self._modules:
            if module_id in batch:
                obs = select_transitions(
                    module_id, batch[module_id], (), self._modules[module_id].settings.state
                ).obs
                self._append(module_id, obs)

    def _append(self, module_id: str, obs: Tensor) -> None:
        if module_id not in self._observations:
            # Once and for all: growing would mean a second copy of them.
            shape = (self._capacity, *obs.shape[1:])
            self._observations[module_id] = torch.empty(shape, dtype=obs.dtype)
        buffer, count = self._observations[module_id], self._counts.get(module_id, 0)
        taken = min(len(obs), self._capacity - count)
        buffer[count : count + taken] = obs[:taken]
        self._counts[module_id] = count + taken

    def advance(self) -> str | None:
        """Fit a little; a line of progress, or None when all is fitted."""
        if self._steps is None:
            self._steps = self._fit_all()
        return next(self._steps, None)

    def _fit_all(self) -> Any:
        for module_id, bonus in self._modules.items():
            count = self._counts.get(module_id, 0)
            if count == 0 and self._capacity > 0:
                raise ConfigError(
                    f"module {module_id!r} did not act in any of Phase 1's {self._capacity:,} "
                    "steps: map an agent to it, or leave it out of policies_to_train"
                )
            obs = self._observations.pop(module_id, torch.empty((0, *bonus.obs_shape)))
            try:
                self.fits[module_id] = yield from bonus.fit(obs[:count])
            except ConfigError as error:
                raise ConfigError(f"module {module_id!r}: {error}") from error
            except RiseError:
                raise
            except Exception as error:
                raise RiseError(
                    f"module {module_id!r}: the fit of Phase 1 failed with "
                    f"{type(error).__name__}: {error}"
                ) from error


@dataclass(frozen=True)
class Pending:
    """What Phase 1 has to do.

    Attributes:
        steps: Environment steps to take.
        shapes: Of the observations of each module whose bonus is not fitted.
        policy: A digest of the weights to take them with.
        fresh: Whether they, and the bonuses, are as they were built.
    """

    steps: int
    shapes: dict[str, tuple[int, ...]]
    policy: str
    fresh: bool


def pending(learner: Any) -> Pending | None:
    """What is to be done; None if all is fitted."""
    bonuses = learner.intrinsic.unfitted()
    if not bonuses:
        return None
    return Pending(
        steps=max(b.warmup_steps(b.settings, b.obs_shape) for b in bonuses.values()),
        shapes={module_id: bonus.obs_shape for module_id, bonus in bonuses.items()},
        policy=digest(learner.module.get_state()),
        fresh=not learner.intrinsic.clock.started and not learner.intrinsic.restored,
    )


def begin(learner: Any, *, capacity: int) -> None:
    """Make room for so many observations."""
    learner.phase1 = Fitting(learner, capacity)


@errors_as_values
def add_observations(learner: Any, *, parts: list[Any]) -> list[int]:
    """Take in lists of episodes, or references to them; the numbers of those that were lost."""
    lost = []
    for number, part in enumerate(parts):
        try:
            episodes = ray.get(part) if isinstance(part, ray.ObjectRef) else part
        except ray.exceptions.RayError as error:
            logger.warning("observations of Phase 1 were lost with their env runner: %s", error)
            lost.append(number)
            continue
        learner.phase1.add(episodes)
    return lost


@errors_as_values
def advance(learner: Any) -> str | None:
    """See `Fitting.advance`."""
    return learner.phase1.advance()


@errors_as_values
def adopt(learner: Any, *, env_steps: int, cache: FitCache | None) -> dict[str, FitReport]:
    """Take over what was fitted here, and keep it for other runs."""
    fits = learner.phase1.fits
    learner.phase1 = None
    if cache is not None:
        cache.store(fits, env_steps=env_steps)
    return learner.intrinsic.adopt(fits, env_steps=env_steps)


@errors_as_values
def adopt_cached(learner: Any, *, cache: FitCache) -> tuple[int, dict[str, FitReport]] | None:
    """Take over what an earlier run fitted; None if there is nothing."""
    found = cache.load()
    if found is None or set(found.fits) != set(learner.intrinsic.unfitted()):
        return None
    try:
        reports = learner.intrinsic.adopt(found.fits, env_steps=found.env_steps)
    except (RuntimeError, KeyError) as error:
        logger.warning("the cached fit %s does not fit and is made again: %s", cache.name, error)
        return None
    return found.env_steps, reports


def get_warmup_steps(learner: Any) -> int:
    """Environment steps of Phase 1."""
    return learner.intrinsic.warmup_env_steps


def abandon(learner: Any) -> None:
    """Let go of the observations."""
    learner.phase1 = None


def get_intrinsic_state(learner: Any) -> Any:
    """The state to share."""
    return learner.intrinsic.get_state()


def set_intrinsic_state(learner: Any, *, state: Any) -> None:
    """Take over a shared state."""
    learner.intrinsic.set_state(ray.get(state) if isinstance(state, ray.ObjectRef) else state)
