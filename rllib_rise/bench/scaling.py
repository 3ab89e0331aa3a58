"""More env runners: does sampling scale, and does the bonus' share stay flat?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_rise.bench.measure import STARTS, Figure, by_name, in_turn, median, ratio_over_starts
from rllib_rise.rllib.ppo import RISEPPOConfig

_WAIT = 0.02
_STEPS = 25
_SIZE = 128
_GOAL_AT = 8
_RUNNERS = {"quick": (2, 8), "full": (2, 4, 8, 16)}
_TURNS = 6


class Waiting(gym.Env):
    """Each step waits, as a simulator on another machine would; observations are noise."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (_SIZE,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin anew."""
        super().reset(seed=seed)
        self._steps = 0
        return self._noise(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Wait."""
        time.sleep(_WAIT)
        self._steps += 1
        return self._noise(), 0.0, False, self._steps >= 100, {}

    def _noise(self) -> np.ndarray:
        return self.np_random.normal(size=_SIZE).astype(np.float32)


class _Watched:
    """A training with so many env runners, and what its iterations consist of.

    Attributes:
        told: Of every iteration the seconds of its update and of the bonus in it, and those that
            the driver computes for besides the update.
    """

    def __init__(self, runners: int) -> None:
        self._algorithm = _algorithm(runners)
        self._group = self._algorithm.learner_group
        self._update, self._group.update = self._group.update, self._timed_update
        self.told: dict[str, list[float]] = {"update": [], "bonus": [], "driver": []}

    def iterate(self) -> None:
        """Train for an iteration."""
        began, self._updating = time.process_time(), 0.0
        result = self._algorithm.train()
        self.told["driver"].append(time.process_time() - began - self._updating)
        learner = result["learners"]["default_policy"]
        self.told["bonus"].append(float(learner["intrinsic_seconds"]))

    def _timed_update(self, *args: Any, **kwargs: Any) -> Any:
        began, computing = time.perf_counter(), time.process_time()
        try:
            return self._update(*args, **kwargs)
        finally:
            self.told["update"].append(time.perf_counter() - began)
            self._updating += time.process_time() - computing

    def stop(self) -> None:
        """End it."""
        self._algorithm.stop()


def scaling(
    threads: int, form: str, on_progress: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """Steps per second over the number of env runners, each against one runner, in turn.

    Every runner takes the same number of steps, so with perfect scaling an iteration takes as long
    as with one of them.
    """
    starts: dict[int, list[dict[str, list[float]]]] = {number: [] for number in _RUNNERS[form]}
    for start in range(STARTS[form]):
        one = _Watched(1)
        try:
            for number, measured in starts.items():
                on_progress(f"scaling, start {start + 1} of {STARTS[form]}: {number} env runners")
                measured.append(_compared(one, number))
        finally:
            one.stop()
    compared = {number: by_name(measured) for number, measured in starts.items()}
    figures = []
    for number, seconds in compared.items():
        title = f"scaling: efficiency of {number} env runners"
        goal = ">= 0.85" if number == _GOAL_AT else None
        figures.append(ratio_over_starts(title, seconds["one"], seconds["several"], goal))
    most = max(compared)
    title = f"scaling: the bonus' share of an iteration with {most} env runners over that with one"
    several, single = (_shares(compared[most], which) for which in ("several", "one"))
    rows = [_row(1, compared[most], "one", 1.0)]
    rows += [
        _row(number, seconds, "several", figure.ratio)
        for (number, seconds), figure in zip(compared.items(), figures, strict=True)
    ]
    figures.append(ratio_over_starts(title, several, single))
    return figures, {"rows": rows, "step_seconds": _WAIT, "steps_per_runner": _STEPS}


def _compared(one: _Watched, number: int) -> dict[str, list[float]]:
    """Seconds of iterations with one runner and with several, and what they consist of."""
    several = _Watched(number)
    try:
        seconds = in_turn({"one": one.iterate, "several": several.iterate}, turns=_TURNS)
    finally:
        several.stop()
    for name, watched in (("one", one), ("several", several)):
        # in_turn does not keep the first.
        seconds |= {f"{name}: {part}": told[-_TURNS:] for part, told in watched.told.items()}
    return seconds


def _shares(seconds: dict[str, list[list[float]]], which: str) -> list[list[float]]:
    pairs = zip(seconds[f"{which}: bonus"], seconds[which], strict=True)
    return [(np.array(bonus) / np.array(iteration)).tolist() for bonus, iteration in pairs]


def _row(
    number: int, seconds: dict[str, list[list[float]]], which: str, efficiency: float
) -> dict[str, Any]:
    iteration, bonus = median(seconds[which]), median(seconds[f"{which}: bonus"])
    return {
        "runners": number,
        "seconds_of_one": seconds["one"],
        "seconds": seconds[which],
        "efficiency": efficiency,
        "steps_per_second": number * _STEPS / iteration,
        "bonus_seconds": bonus,
        "bonus_share": bonus / iteration,
        "learner_seconds": median(seconds[f"{which}: update"]),
        "driver_seconds": median(seconds[f"{which}: driver"]),
    }


def _algorithm(runners: int) -> Any:
    batch = runners * _STEPS
    return (
        RISEPPOConfig()
        .environment(Waiting)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=1, num_cpus_per_env_runner=0)
        .training(train_batch_size_per_learner=batch, minibatch_size=batch, num_epochs=1)
        .rise(k=3, encoder="identity")
        .build_algo()
    )
