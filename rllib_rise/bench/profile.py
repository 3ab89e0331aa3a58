"""Where the time of an Atari iteration goes: RLlib's env runner and learner, and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rllib_rise.bench.contestants import OURS_PROFILED, Entry, contest
from rllib_rise.bench.measure import Figure, median
from rllib_rise.bench.training import SHORT_PHASE1

_RLLIB = {
    "rllib.env_runner_cls": "ray.rllib.env.single_agent_env_runner:SingleAgentEnvRunner",
    "rllib.learner_class": "rllib_rise.bench.trainers:RLlibPPOLearner",
}


def _entry(changes: dict[str, Any], *, keeps_memory: bool = True) -> Entry:
    return Entry("Atari", OURS_PROFILED, {**SHORT_PHASE1, **changes}, keeps_memory)


_ENTRIES = {
    "RLlib's env runner and learner, memory given back": _entry(_RLLIB, keeps_memory=False),
    "RLlib's env runner and learner": _entry(_RLLIB),
    "ours": _entry({}),
    "ours, bfloat16": _entry({"rllib.model_config.precision": "bfloat16"}),
}
_TURNS = {"quick": 2, "full": 10}


def profile(
    threads: int, form: str, on_progress: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """Seconds of the parts of an iteration, medians over iterations in turn."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in _ENTRIES}
    on_progress(f"profile: starting {len(_ENTRIES)} trainings")
    with contest(_ENTRIES, threads=threads) as contestants:
        for turn in range(_TURNS[form]):
            on_progress(f"profile: turn {turn + 1} of {_TURNS[form]}")
            for name, one in contestants.items():
                one.iterate()
                found[name].append(one.figures()["parts"])
    parts = {
        name: {part: round(median([turn[part] for turn in turns]), 4) for part in turns[0]}
        for name, turns in found.items()
    }
    return [], {"seconds": parts}
