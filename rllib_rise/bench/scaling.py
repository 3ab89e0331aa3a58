"""More env runners: does sampling scale, and does the bonus' share stay flat?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_rise.bench.measure import Figure, in_turn, median, ratio_of
from rllib_rise.rllib.ppo import RISEPPOConfig

_WAIT = 0.02
_STEPS = 25
_GOAL_AT = 8
_RUNNERS = {"quick": (2, 8), "full": (2, 4, 8, 16)}
_TURNS = {"quick": 5, "full": 20}


class Waiting(gym.Env):
    """Each step waits, as a simulator on another machine would; observations are noise."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (8,), np.float32)
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
        return self.np_random.normal(size=8).astype(np.float32)


def scaling(
    threads: int, form: str, on_progress: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """Steps per second over the number of env runners, each against one runner, in turn.

    Every runner takes the same number of steps, so with perfect scaling an iteration takes as long
    as with one of them.
    """
    rows, figures = [], []
    one = _algorithm(1)
    try:
        for number in _RUNNERS[form]:
            on_progress(f"scaling: {number} env runners")
            figure, row = _compared(one, number, _TURNS[form])
            figures.append(figure)
            rows.append(row)
    finally:
        one.stop()
    return figures, {"rows": rows, "step_seconds": _WAIT, "steps_per_runner": _STEPS}


def _compared(one: Any, number: int, turns: int) -> tuple[Figure, dict[str, Any]]:
    several = _algorithm(number)
    results: list[dict[str, Any]] = []
    updates: list[float] = []
    update = several.learner_group.update

    def timed_update(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return update(*args, **kwargs)
        finally:
            updates.append(time.perf_counter() - began)

    several.learner_group.update = timed_update
    try:
        seconds = in_turn(
            {"one": one.train, "several": lambda: results.append(several.train())}, turns=turns
        )
    finally:
        several.stop()
    title = f"scaling: efficiency of {number} env runners"
    goal = ">= 0.85" if number == _GOAL_AT else None
    figure = ratio_of(title, seconds["one"], seconds["several"], goal)
    kept = results[-turns:]
    bonus = median([one["learners"]["default_policy"]["intrinsic_seconds"] for one in kept])
    iteration = median(seconds["several"])
    return figure, {
        "runners": number,
        "seconds": seconds["several"],
        "efficiency": figure.ratio,
        "steps_per_second": number * _STEPS / iteration,
        "bonus_seconds": bonus,
        "bonus_share": bonus / iteration,
        "learner_seconds": median(updates[-turns:]),
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
