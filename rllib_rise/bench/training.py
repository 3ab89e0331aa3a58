"""Whole iterations of training: what the bonus adds, and how fast Stable-Baselines3 is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from rllib_rise.bench.contestants import STABLE_BASELINES, Entry, contest
from rllib_rise.bench.measure import (
    STARTS,
    Figure,
    by_name,
    in_turn,
    median,
    ratio_of,
    ratio_over_starts,
)
from rllib_rise.bench.trainers import INSTALL, TASKS, steps_per_iteration, task

# How good the encoder is does not matter here, nor how k was found.
SHORT_PHASE1: dict[str, Any] = {"intrinsic.warmup_steps": 600, "intrinsic.k": 5}
NO_BONUS: dict[str, Any] = {"intrinsic.method": "none"}
_SB3, _PPO, _RISE = "Stable-Baselines3's PPO", "PPO", "RISE-PPO"
_OVERHEAD_GOALS = {"Atari": "<= 1.06", "Hopper": "<= 1.03"}
# Per start.
_TURNS = {"Atari": 6, "Hopper": 15}


@dataclass(frozen=True)
class _Faster:
    """What a user may switch on, besides the settings that all have in common.

    Attributes:
        name: Of the training with it.
        changes: Settings.
        goals: What RISE-PPO should be over Stable-Baselines3's PPO, without and with it. Whether
            bfloat16 learns as well is not known, so that the higher goal is for float32.
    """

    name: str
    changes: dict[str, Any]
    goals: tuple[str, str | None]


_FASTER = {
    "Atari": _Faster(
        "RISE-PPO in bfloat16", {"rllib.model_config.precision": "bfloat16"}, (">= 1.25", None)
    ),
    "Hopper": _Faster(
        "RISE-PPO with two env runners",
        {"rllib.num_env_runners": 2, "rllib.num_envs_per_env_runner": 4},
        (">= 1", ">= 1.1"),
    ),
}
# The paper's, and all.
_METHODS: dict[str, tuple[str, ...]] = {"quick": ("re3", "max-renyi", "rise")}
_METHODS["full"] = (*_METHODS["quick"], "rnd", "icm", "count", "ride", "ngu")
_METHOD_TURNS = 6

OnProgress = Callable[[str], None]


def against_others(
    threads: int, form: str, on_progress: OnProgress
) -> tuple[list[Figure], dict[str, Any]]:
    """RISE-PPO, our PPO and Stable-Baselines3's: the same networks, batches, epochs, threads."""
    figures: list[Figure] = []
    raw: dict[str, Any] = {}
    for name in TASKS:
        faster = _FASTER[name]
        entries = {
            _PPO: Entry(name, changes=NO_BONUS),
            _RISE: Entry(name, changes=SHORT_PHASE1),
            faster.name: Entry(name, changes=SHORT_PHASE1 | faster.changes),
        }
        if find_spec("stable_baselines3") is None:
            raw["skipped"] = f"Stable-Baselines3 is not installed: {INSTALL}"
        else:
            entries[_SB3] = Entry(name, STABLE_BASELINES)
        starts = []
        for start in range(STARTS[form]):
            title = f"{name}, start {start + 1} of {STARTS[form]}"
            one_start, told = _measured(title, entries, threads, _TURNS[name], on_progress)
            starts.append(one_start)
        seconds = by_name(starts)
        steps = steps_per_iteration(task(name, {}))
        raw[name] = {
            "seconds": seconds,
            "steps_per_second": {one: steps / median(many) for one, many in seconds.items()},
            "told": told,
        }
        figures += training_figures(name, seconds)
    return figures, raw


def training_figures(name: str, seconds: dict[str, list[list[float]]]) -> list[Figure]:
    """The ratios of a task's iterations."""
    title, faster = f"{name}: RISE-PPO's iteration over PPO's", _FASTER[name]
    figures = [ratio_over_starts(title, seconds[_RISE], seconds[_PPO], _OVERHEAD_GOALS[name])]
    if _SB3 in seconds:
        for one, goal in zip((_RISE, faster.name), faster.goals, strict=True):
            title = f"{name}: {one}, times as fast as Stable-Baselines3's PPO"
            figures.append(ratio_over_starts(title, seconds[_SB3], seconds[one], goal))
    return figures


def all_methods(
    threads: int, form: str, on_progress: OnProgress
) -> tuple[list[Figure], dict[str, Any]]:
    """Every method on Atari: iterations over those of PPO without a bonus."""
    entries = {"none": Entry("Atari", changes=NO_BONUS)}
    for method in _METHODS[form]:
        changes = {"intrinsic.method": method}
        entries[method] = Entry(
            "Atari", changes=changes | (SHORT_PHASE1 if method == "rise" else {})
        )
    seconds, told = _measured("all methods", entries, threads, _METHOD_TURNS, on_progress)
    steps = steps_per_iteration(task("Atari", {}))
    figures, rows = [], []
    for method, many in seconds.items():
        if method != "none":
            title = f"methods: an iteration with {method} over one without a bonus"
            figures.append(ratio_of(title, many, seconds["none"]))
        rows.append(
            {
                "method": method,
                "steps_per_second": steps / median(many),
                "seconds": many,
                **told[method],
            }
        )
    return figures, {"rows": rows}


def phase1(threads: int, form: str, on_progress: OnProgress) -> tuple[list[Figure], dict[str, Any]]:
    """Phase 1 of Atari: where its seconds go."""
    observations = {"quick": 1000, "full": 10_000}[form]
    changes = {"intrinsic.warmup_steps": observations}
    on_progress(f"Phase 1 with {observations:,} observations")
    with contest({"rise": Entry("Atari", changes=changes)}, threads=threads) as found:
        seconds = found["rise"].started["phase1"]
    return [], {"observations": observations, "seconds": seconds}


def _measured(
    title: str, entries: dict[str, Entry], threads: int, turns: int, on_progress: OnProgress
) -> tuple[dict[str, list[float]], dict[str, dict[str, Any]]]:
    """Seconds of the iterations of one start, and what the trainings tell of the last."""
    on_progress(f"{title}: starting {len(entries)} trainings")
    with contest(entries, threads=threads) as contestants:
        calls = {one: contestant.iterate for one, contestant in contestants.items()}

        told: dict[str, list[dict[str, float]]] = {one: [] for one in contestants}

        def ask() -> None:
            for one, contestant in contestants.items():
                told[one].append(contestant.figures())

        def on_turn(turn: int) -> None:
            on_progress(f"{title}: turn {turn + 1} of {turns}")
            ask()

        seconds = in_turn(calls, turns=turns, on_turn=on_turn)
        ask()
    # The first is from before the turns.
    return seconds, {one: _middle(many[1:]) for one, many in told.items()}


def _middle(told: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(median([one[name] for one in told]), 4) for name in told[0]}
