"""What `rise bench` runs, and the files that it leaves.

NAME.json      one for each part: its figures, what was measured, machine, versions, date, command
summary.json   the figures of all parts that are there: [{figure, ratio, low, high, goal, holds}]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rllib_rise.bench.backends import on_cpu, on_gpu
from rllib_rise.bench.distances import bonus_alone
from rllib_rise.bench.growth import growth
from rllib_rise.bench.measure import Figure
from rllib_rise.bench.profile import profile
from rllib_rise.bench.scaling import scaling
from rllib_rise.bench.training import against_others, all_methods, phase1
from rllib_rise.errors import ConfigError
from rllib_rise.experiments.run.run_directory import versions, write_json

OnProgress = Callable[[str], None]
Suite = Callable[[int, str, OnProgress], tuple[list[Figure], dict[str, Any]]]

SUITES: dict[str, Suite] = {
    "bonus": bonus_alone,
    "growth": growth,
    "training": against_others,
    "methods": all_methods,
    "phase1": phase1,
    "profile": profile,
    "scaling": scaling,
}
ON_REQUEST: dict[str, Suite] = {"backends": on_cpu, "gpu": on_gpu}
"""Parts that decide nothing for users, or that not every machine can measure."""
FOLDERS = {"quick": Path("runs/bench"), "full": Path("benchmarks/results")}
"""Where each form writes by default."""
_PACKAGES = ("ale-py", "pybullet", "stable-baselines3", "rllte-core")


def run_suites(
    names: Iterable[str],
    out: Path,
    *,
    form: str,
    threads: int,
    on_progress: OnProgress,
) -> list[dict[str, Any]]:
    """Measure, and write the files.

    Args:
        names: Which of `SUITES` and `ON_REQUEST`.
        out: The folder.
        form: `quick` or `full`.
        threads: Threads of every process that computes.
        on_progress: Called with what is being done.

    Returns:
        The summary, of these parts and of those that the folder had.
    """
    chosen, known = list(names), SUITES | ON_REQUEST
    for name in chosen:
        if name not in known:
            raise ConfigError(f"{name!r} is no part of the benchmark: {', '.join(known)}")
    for other in _results(out):
        if other["part"] not in chosen and (other["form"], other["threads"]) != (form, threads):
            raise ConfigError(
                f"{out} has {other['part']} in the {other['form']} form with {other['threads']} "
                "threads, which would stand beside these: choose another --out"
            )
    out.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        figures, measured = known[name](threads, form, on_progress)
        result = {
            "part": name,
            "form": form,
            "threads": threads,
            "date": datetime.now(UTC).date().isoformat(),
            "command": _command(name, out, form, threads),
            "machine": versions(*_PACKAGES),
            "figures": [figure.as_json() for figure in figures],
            "measured": measured,
        }
        write_json(out / f"{name}.json", result)
        write_json(out / "summary.json", summary(out))
    return summary(out)


def _command(name: str, out: Path, form: str, threads: int) -> str:
    full = "--full " if form == "full" else ""
    part = "--gpu" if name == "gpu" else f"--only {name}"
    where = "" if out == FOLDERS[form] else f" --out {out}"
    return f"rise bench {full}{part} --threads {threads}{where}"


def summary(folder: Path) -> list[dict[str, Any]]:
    """The figures of all parts in a folder, in the order of `SUITES`, then `ON_REQUEST`."""
    return [figure for result in _results(folder) for figure in result["figures"]]


def skipped(folder: Path) -> list[str]:
    """What could not be measured, and why."""
    return [
        f"{result['part']}: {reason}"
        for result in _results(folder)
        if (reason := result["measured"].get("skipped"))
    ]


def _results(folder: Path) -> list[dict[str, Any]]:
    files = [folder / f"{name}.json" for name in SUITES | ON_REQUEST]
    return [json.loads(file.read_text()) for file in files if file.exists()]
