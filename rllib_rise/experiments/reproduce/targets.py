"""What `rise reproduce` can make again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rllib_rise.experiments.reproduce.contours import contours
from rllib_rise.experiments.reproduce.deep import deep
from rllib_rise.experiments.reproduce.maze import maze
from rllib_rise.experiments.reproduce.theory import theory

Tables = list[tuple[str, list[dict[str, Any]]]]
Target = Callable[[Path, str, Callable[[str], None]], Tables]

TARGETS: dict[str, Target] = {
    "contours": contours,
    "theory": theory,
    "maze": maze,
    "atari": partial(deep, "atari"),
    "bullet": partial(deep, "bullet"),
}
WITH_RAY = ("atari", "bullet", "throughput")
"""Targets that train by Ray."""
