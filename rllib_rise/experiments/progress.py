"""How far the runs of a comparison or a sweep are, for those who show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PlannedRun:
    """One of them."""

    method: str
    seed: int
    directory: Path


@dataclass(frozen=True)
class RunProgress:
    """How far it is."""

    entry: PlannedRun
    env_steps: int
    budget: int
    state: str
    coverage: float | None
