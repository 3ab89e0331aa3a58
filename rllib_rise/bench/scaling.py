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
_GOAL_AT = 8
_RUNNERS = {"quick": (2, 8), "full": (2, 4, 8, 16)}
_TURNS = 6


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
    starts: dict[int, list[dict[str, list[float]]]] = {number: [] for number in _RUNNERS[form]}
    for start in range(STARTS[form]):
        one = _algorithm(1)
        try:
            for number, measured in starts.items():
                on_progress(f"scaling, start {start + 1} of {STARTS[form]}: {number} env runners")
                measured.append(_compared(one, number))
        finally:
            one.stop()
    rows, figures = [], []
    for number, measured in starts.items():
        seconds = by_name(measured)
        title = f"scaling: efficiency of {number} env runners"
        goal = ">= 0.85" if number == _GOAL_AT else None
        figure = ratio_over_starts(title, seconds["one"], seconds["several"], goal)
        figures.append(figure)
        rows.append(_row(number, seconds, figure.ratio))
    return figures, {"rows": rows, "step_seconds": _WAIT, "steps_per_runner": _STEPS}


def _compared(one: Any, number: int) -> dict[str, list[float]]:
    """Seconds of iterations with one runner and with several, of the latter's updates and bonus."""
    several = _algorithm(number)
    bonus: list[float] = []
    updates: list[float] = []
    update = several.learner_group.update

    def timed_update(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return update(*args, **kwargs)
        finally:
            updates.append(time.perf_counter() - began)

    def iterate() -> None:
        result = several.train()
        bonus.append(float(result["learners"]["default_policy"]["intrinsic_seconds"]))

    several.learner_group.update = timed_update
    try:
        seconds = in_turn({"one": one.train, "several": iterate}, turns=_TURNS)
    finally:
        several.stop()
    # in_turn does not keep the first.
    return {**seconds, "updates": updates[-_TURNS:], "bonus": bonus[-_TURNS:]}


def _row(number: int, seconds: dict[str, list[list[float]]], efficiency: float) -> dict[str, Any]:
    iteration, bonus = median(seconds["several"]), median(seconds["bonus"])
    return {
        "runners": number,
        "seconds_of_one": seconds["one"],
        "seconds": seconds["several"],
        "efficiency": efficiency,
        "steps_per_second": number * _STEPS / iteration,
        "bonus_seconds": bonus,
        "bonus_share": bonus / iteration,
        "learner_seconds": median(seconds["updates"]),
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
