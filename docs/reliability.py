"""Writes the tables of docs/reliability.md: `python docs/reliability.py`.

From results/reliability, which `make reliability` leaves: tests.json is what the tests said that
fuzz, resume and inject faults, soak.csv what `python benchmarks/soak.py` saw.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "results" / "reliability"
_MARKERS = re.compile(r"(<!-- reliability: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MEGABYTE = 1e6
# The first third is left out: caches, memory pools and what Ray remembers of calls fill up.
_SETTLED = 1 / 3
_MEMORY = ("driver", "learner 1", "env runner 1", "env runner 2", "Ray's processes", "object store")
_DISK = ("checkpoints", "metrics.csv", "events", "rest of the run", "Ray's session")


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / name).read_text())


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(titles)
    return "".join(f"| {' | '.join(line)} |\n" for line in [titles, ["---"] * len(titles), *rows])


def _where(machine: dict[str, Any]) -> str:
    packages = machine["packages"]
    return (
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, "
        f"ray {packages['ray']}, torch {packages['torch']}"
    )


def _said(kind: str) -> list[Any]:
    """What tests that passed say about a subject."""
    return [test[kind] for test in _read("tests.json")["tests"].values() if kind in test]


def tests() -> str:
    """Where and when the tests ran."""
    found = _read("tests.json")
    dates = sorted({test["date"] for test in found["tests"].values()})
    return f"{_where(found['machine'])}; {', '.join(dates)}.\n"


def faults() -> str:
    """Each fault that was put into a run, and what came of it."""
    found = sorted(_said("fault"), key=lambda one: one["fault"].lower())
    return _table(("fault", "what happens"), ((f["fault"], f["outcome"]) for f in found))


def fuzzing() -> str:
    """Properties, and with how many examples they were tried."""
    most: dict[str, dict[str, Any]] = {}
    for one in _said("fuzz"):
        if one["examples"] >= most.get(one["property"], one)["examples"]:
            most[one["property"]] = one
    found = sorted(most.values(), key=lambda one: one["property"])
    rows = [(f["property"], f"{f['examples']:,}", f"{f['rejected']:,}") for f in found]
    sums = [sum(f[key] for f in found) for key in ("examples", "rejected")]
    rows.append(("together", *(f"{number:,}" for number in sums)))
    return _table(("property", "examples", "refused by one of our errors"), rows)


def resuming() -> str:
    """The cases that were resumed exactly."""
    names = sorted(_said("resumed"))
    return f"Equal to the last bit in all {len(names)} cases: {'; '.join(names)}.\n"


def _soaked() -> dict[str, np.ndarray]:
    """Columns of the soak, without what was before all processes were there."""
    with (RESULTS / "soak.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if all(row.values())]
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def memory() -> str:
    """Memory over time: where it was, and how it changes."""
    soaked = _soaked()
    minutes = soaked["seconds"] / 60
    settled = minutes >= _SETTLED * minutes[-1]
    rows = []
    for name in _MEMORY:
        values = soaked[name] / _MEGABYTE
        slope, _, low, high = stats.theilslopes(values[settled], minutes[settled])
        thirds = [np.median(part) for part in np.array_split(values, 3)]
        rows.append(
            (
                name,
                *(f"{middle:,.1f}" for middle in thirds),
                f"{values.max():,.1f}",
                f"{slope:+.3f} [{low:+.3f}, {high:+.3f}]",
            )
        )
    titles = ("MB", "first third", "second third", "last third", "most", "MB per minute")
    told = f"{minutes[-1]:.0f} minutes, {soaked['iterations'][-1]:,.0f} iterations. "
    about = _read("soak.json")
    return f"{told}{_where(about['machine'])}; {about['date']}.\n\n" + _table(titles, rows)


def disk() -> str:
    """What was written, and what comes to it with every iteration."""
    soaked = _soaked()
    iterations, rows = soaked["iterations"], []
    settled = soaked["seconds"] >= _SETTLED * soaked["seconds"][-1]
    for name in _DISK:
        values = soaked[name] / _MEGABYTE
        slope = stats.theilslopes(values[settled], iterations[settled])[0]
        rows.append((name, f"{values[-1]:,.2f}", f"{values.max():,.2f}", f"{1000 * slope:+.2f}"))
    return _table(("MB", "in the end", "most", "per 1,000 iterations"), rows)


_MAKERS: dict[str, Callable[[], str]] = {
    maker.__name__: maker for maker in (tests, faults, fuzzing, resuming, memory, disk)
}


def page() -> str:
    """The page with fresh tables."""
    return _MARKERS.sub(lambda match: match[1] + _MAKERS[match[2]]() + match[3], PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
