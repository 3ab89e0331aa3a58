"""What `rise reproduce` can make again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rllib_rise.experiments.reproduce.contours import contours
from rllib_rise.experiments.reproduce.deep import SUITES, configs_of, deep
from rllib_rise.experiments.reproduce.maze import maze
from rllib_rise.experiments.reproduce.record import OnProgress
from rllib_rise.experiments.reproduce.theory import theory

Tables = list[tuple[str, list[dict[str, Any]]]]
Target = Callable[[Path, str, OnProgress], Tables]

TARGETS: dict[str, Target] = {
    "contours": contours,
    "theory": theory,
    "maze": maze,
    "atari": partial(deep, "atari"),
    "bullet": partial(deep, "bullet"),
}
RESUMABLE = ("maze", "atari", "bullet")
"""Targets that go on where they were interrupted."""
WITH_RAY = ("atari", "bullet", "throughput")
"""Targets that train by Ray."""


def check(target: str) -> None:
    """Raise where a target cannot be made here, before anything starts."""
    if target in SUITES:
        configs_of(target)
