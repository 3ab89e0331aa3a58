"""What run directories say."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_rise.errors import CheckpointError, RunDirectoryError
from rllib_rise.experiments.compare import folder_name
from rllib_rise.experiments.run.phase1_files import read_phase1
from rllib_rise.experiments.run.run_directory import RunDirectory

RETURN, COVERAGE = "episode_return_mean", "coverage"
"""Columns of metrics.csv; a finished run has its coverage under the same name."""


@dataclass(frozen=True)
class Run:
    """What a run directory says."""

    directory: RunDirectory
    label: str
    config: dict[str, Any]
    rows: list[dict[str, float | None]]
    result: dict[str, Any] | None

    @property
    def method(self) -> str:
        """The name of the intrinsic reward."""
        return str(self.config.get("intrinsic", {}).get("method", "rise"))

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.config.get("seed", 0))

    @property
    def env(self) -> dict[str, Any]:
        """The environment's id and its arguments."""
        env = self.config["env"]
        return {"id": env} if isinstance(env, str) else env

    @property
    def versions(self) -> dict[str, Any]:
        """What versions.json says; empty if it is not there."""
        path = self.directory.path / "versions.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def series(self, column: str) -> tuple[list[float], list[float]]:
        """Environment steps and values of a column, where it has any."""
        pairs = [
            (steps, value)
            for row in self.rows
            if (value := row.get(column)) is not None and (steps := row["env_steps"]) is not None
        ]
        return [float(steps) for steps, _ in pairs], [float(value) for _, value in pairs]

    def visits(self) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        """Visit counts and reachable cells; of the newest checkpoint while the run goes on."""
        path = self.directory.exploration
        if not path.exists():
            with contextlib.suppress(CheckpointError):
                path = (self.directory.latest_checkpoint() or path.parent) / path.name
        if not path.exists():
            return None
        with np.load(path) as data:
            return data["visit_counts"], data["reachable"].astype(bool)

    def phase1(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
        """The report of Phase 1 and its arrays; None if the run had none."""
        return read_phase1(self.directory.path)


def read_run(path: Path) -> Run:
    """The run in a directory, without a label.

    Raises:
        RunDirectoryError: There is no run, or it has nothing to show yet.
    """
    directory = RunDirectory(path)
    if not directory.exists:
        raise RunDirectoryError(
            f"{path} is no run, comparison or sweep (it has no config.yaml, comparison.json or "
            "sweep.json): give a directory that `rise train`, `compare` or `tune` has written"
        )
    run = _read(directory)
    if not run.rows:
        raise RunDirectoryError(
            f"{path} has no rows in metrics.csv yet: ask again after its first training iteration"
        )
    return run


def read_groups(out: Path, methods: Sequence[str]) -> dict[str, list[Run]]:
    """Per method of a comparison its runs that have something to show, in the order of the seeds.

    Raises:
        RunDirectoryError: There is no such run.
    """
    groups: dict[str, list[Run]] = {}
    for method in methods:
        places = sorted((out / folder_name(method)).glob("seed_*"), key=lambda p: (len(p.name), p))
        directories = [RunDirectory(place) for place in places]
        runs = [_read(directory, method) for directory in directories if directory.exists]
        groups[method] = [run for run in runs if run.rows]
    if not any(groups.values()):
        raise RunDirectoryError(
            f"{out} has no run with rows yet: ask again after the first training iterations"
        )
    return groups


def settled(runs: Sequence[Run]) -> list[Run]:
    """The finished runs; while there are none, all of them."""
    return [run for run in runs if run.result] or list(runs)


def _read(directory: RunDirectory, label: str = "") -> Run:
    result = directory.read_result() if directory.finished else None
    return Run(directory, label, directory.read_config(), directory.read_metrics(), result)
