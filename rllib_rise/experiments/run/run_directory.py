"""A run directory: what a run writes, and how another process reads it.

config.yaml       the resolved experiment
versions.json     commit, packages, Python, platform, cores
metrics.csv       a row per training iteration; episode_return_mean is over recent episodes
events.out...     the same for TensorBoard
checkpoints/      iteration_000010/{algorithm/, progress.json, exploration.npz, MANIFEST.json}, the
                  newest ones
exploration.npz   visit counts, where the environment counts them
phase1.json,.npz  what Phase 1 did, for the report; phase1.log: its progress
encoder.safetensors  the encoder that Phase 1 fitted, for `encoder_file` of other runs
error.txt         the traceback of what ended the run, where something did
result.json       final figures; its presence says that the run is finished
report.html       the page of `rise report`
"""

from __future__ import annotations

import csv
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import yaml

from rllib_rise.errors import RunDirectoryError
from rllib_rise.experiments.run.checkpoints import list_checkpoints, newest_whole, write_checkpoint

_PACKAGES = ("rllib_rise", "ray", "torch", "gymnasium", "numpy", "faiss-cpu", "faiss-gpu")
_TORN, _PARTIAL = ".torn_", ".partial"
COMMIT = "RISE_COMMIT"
"""Names the commit that a job on a cluster was submitted from: no history goes along."""


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.csv"
        self.result = self.path / "result.json"
        self.exploration = self.path / "exploration.npz"
        self.checkpoints = self.path / "checkpoints"
        self.error = self.path / "error.txt"
        self.phase1_log = self.path / "phase1.log"

    @property
    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.config.exists()

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.result.exists()

    def refuse_existing(self) -> None:
        """Raise where there is anything already but what a start that was cut off has left."""
        if holds_something(self.path):
            raise already_there(self.path)

    def open(self, experiment: dict[str, Any]) -> None:
        """Start a run here, or go on with the one that is here."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.config, yaml.safe_dump(experiment, sort_keys=False))
        self.checkpoints.mkdir(exist_ok=True)
        self.result.unlink(missing_ok=True)
        self.error.unlink(missing_ok=True)
        if not list_checkpoints(self.checkpoints):
            for leftover in (*self.path.glob("events.out.tfevents.*"), self.phase1_log):
                leftover.unlink(missing_ok=True)
        write_json(self.path / "versions.json", versions())

    def log_phase1(self, line: str) -> None:
        """Add a line to the progress of Phase 1."""
        with self.phase1_log.open("a") as stream:
            stream.write(line + "\n")

    def last_of_phase1(self) -> str | None:
        """The last line of Phase 1's progress."""
        lines = self.phase1_log.read_text().splitlines() if self.phase1_log.exists() else []
        return lines[-1] if lines else None

    def read_config(self) -> dict[str, Any]:
        """The resolved experiment as plain data."""
        if not self.exists:
            raise RunDirectoryError(f"{self.path} is not a run directory: it has no config.yaml")
        return yaml.safe_load(self.config.read_text())

    def read_result(self) -> dict[str, Any]:
        """The final figures."""
        if not self.finished:
            raise RunDirectoryError(f"{self.path} has no result.json: the run is not finished")
        return json.loads(self.result.read_text())

    def read_metrics(self) -> list[dict[str, float | None]]:
        """The rows of metrics.csv; empty cells are None. A torn last row is left out."""
        if not self.metrics.exists():
            return []
        with self.metrics.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        if rows and None in rows[-1].values():
            rows.pop()
        return [{k: float(v) if v else None for k, v in row.items()} for row in rows]

    def latest_checkpoint(self) -> Path | None:
        """The newest whole checkpoint; an error where there are some, and all are torn."""
        return newest_whole(self.checkpoints)

    def add_checkpoint(
        self, iteration: int, write: Callable[[Path], Any], *, env_steps: int, keep: int
    ) -> Path:
        """Put what `write(folder)` writes in place as a whole; drop old and torn ones."""
        for leftover in self.checkpoints.glob(".partial_*"):
            shutil.rmtree(leftover)
        target = self.checkpoints / f"iteration_{iteration:06d}"
        write_checkpoint(target, write, iteration=iteration, env_steps=env_steps)
        old = list_checkpoints(self.checkpoints)[:-keep]
        for useless in (*old, *self.checkpoints.glob(f"{_TORN}*")):
            shutil.rmtree(useless)
        return target

    def go_on_from(self, checkpoint: Path) -> None:
        """Put later checkpoints aside: they are torn, and would count among the newest ones."""
        for later in list_checkpoints(self.checkpoints):
            if later.name > checkpoint.name:
                later.rename(later.with_name(_TORN + later.name))


class MetricsFile:
    """Appends rows to a CSV; a row with new columns makes it rewrite the file with them."""

    def __init__(self, path: Path, *, keep_iterations: int = 0) -> None:
        self._path = path
        self._columns: list[str] = []
        rows: list[dict[str, str]] = []
        if keep_iterations > 0 and path.exists():
            with path.open(newline="") as stream:
                reader = csv.DictReader(stream)
                self._columns = list(reader.fieldnames or [])
                whole = (row for row in reader if None not in row.values())
                rows = [row for row in whole if float(row["iteration"]) <= keep_iterations]
        self._rewrite(rows)

    def append(self, row: dict[str, float]) -> None:
        """Add one row and flush it."""
        new = [column for column in row if column not in self._columns]
        if new:
            with self._path.open(newline="") as stream:
                rows = list(csv.DictReader(stream))
            self._columns += new
            self._rewrite(rows)
        with self._path.open("a", newline="") as stream:
            csv.DictWriter(stream, self._columns, restval="").writerow(row)

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        partial = self._path.with_suffix(_PARTIAL)
        with partial.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, self._columns, restval="")
            if self._columns:
                writer.writeheader()
            writer.writerows(rows)
        partial.replace(self._path)


def versions(*also: str) -> dict[str, Any]:
    """What a result depends on besides the code, with the versions of further packages."""
    packages: dict[str, str | None] = {}
    for name in (*_PACKAGES, *also):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "packages": packages,
    }


def _processor() -> str:
    """The processor's name; Linux alone tells it in a file."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _commit() -> str | None:
    """The commit of the checkout that this package is in, with `+changes` if it has any."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return os.environ.get(COMMIT) or None
    try:
        head, changes = (
            subprocess.run(
                ["git", "-C", str(root), *command], capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+changes" if changes else "")


def holds_something(folder: Path) -> bool:
    """Whether there is more in a folder than files that were being written."""
    found = folder.iterdir() if folder.exists() else ()
    return any(path.suffix != _PARTIAL for path in found)


def already_there(folder: Path) -> RunDirectoryError:
    """What to say of a folder that something would be begun in a second time."""
    return RunDirectoryError(
        f"{folder} exists: go on with --resume, or choose another place with --out"
    )


def write_json(path: Path, data: Any) -> None:
    """Write JSON in one piece."""
    write_text(path, json.dumps(data, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file in one piece: readers see the old one or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file in one piece."""
    partial = path.with_name(path.name + _PARTIAL)
    partial.write_bytes(content)
    partial.replace(path)
