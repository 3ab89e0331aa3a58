"""Writes the committed benchmark into docs/performance.md: `python docs/performance.py`.

The page asks for one by `<!-- bench: NAME -->` and `<!-- end -->`; they are made from
benchmarks/results, which `rise bench --full` wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rllib_rise.bench.display import number

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results"
_MARKERS = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SEARCH = (16384, 128)  # points and dimensions whose search stands for others
_BESIDE = ("bonus alone", "Atari", "scaling: the bonus' share")
_HOLDS = {True: "yes", False: "**no**", None: ""}


def _measured(part: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{part}.json").read_text())["measured"]


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(titles)
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def figures() -> str:
    """Every figure that has a goal, and those that belong beside one."""
    summary = json.loads((RESULTS / "summary.json").read_text())
    rows = (
        (
            one["figure"],
            number(one["ratio"]),
            f"{number(one['low'])} to {number(one['high'])}",
            one["goal"] or "",
            _HOLDS[one["holds"]],
        )
        for one in summary
        if one["goal"] or one["figure"].startswith(_BESIDE)
    )
    return _table(("figure", "ratio", "95 % interval", "goal", "holds"), rows)


def machine() -> str:
    """What the figures were measured on."""
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    results = [result for result in results if isinstance(result, dict)]
    machine, threads = results[0]["machine"], results[0]["threads"]
    dates = sorted({result["date"] for result in results})
    packages = ", ".join(
        f"{name} {version}"
        for name, version in machine["packages"].items()
        if version and name != "rllib_rise"
    )
    return (
        f"{machine['processor']}, {machine['cores']} cores, {threads} thread per process, Python "
        f"{machine['python']}; {packages}; {', '.join(dates)}.\n"
    )


def speeds() -> str:
    """Steps per second of the trainings that were compared."""
    measured = _measured("training")
    rows = [
        (task, name, f"{speed:,.0f}")
        for task in ("Atari", "Hopper")
        for name, speed in measured[task]["steps_per_second"].items()
    ]
    return _table(("task", "training", "steps per second"), rows)


def profile() -> str:
    """Where an iteration's time goes."""
    seconds = _measured("profile")["seconds"]
    parts = list(next(iter(seconds.values())))
    rows = [(part, *(f"{one[part]:.3f}" for one in seconds.values())) for part in parts]
    rows.append(("together", *(f"{sum(one.values()):.3f}" for one in seconds.values())))
    return _table(("seconds", *seconds), rows)


def methods() -> str:
    """What each method costs on Atari."""
    result = json.loads((RESULTS / "methods.json").read_text())
    over = {
        one["figure"].split()[4]: f"{one['ratio']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"
        for one in result["figures"]
    }
    rows = []
    for row in result["measured"]["rows"]:
        method = row["method"]
        bonus = method != "none"
        rows.append(
            (
                method,
                f"{row['steps_per_second']:,.0f}",
                f"{np.median(row['seconds']):.2f}",
                over.get(method, ""),
                f"{row['intrinsic_seconds']:.3f}" if bonus else "",
                f"{row['intrinsic_megabytes']:.1f}" if bonus else "",
                f"{row['peak_megabytes']:,.0f}",
            )
        )
    titles = (
        "method",
        "steps per second",
        "seconds per iteration",
        "over none's",
        "of them bonus",
        "MB kept by it",
        "MB of the process",
    )
    return _table(titles, rows)


def growth() -> str:
    """Seconds and memory over the size of the batch."""
    rows = _measured("growth")["rows"]
    dimensions = sorted({row["m"] for row in rows})
    cells = {
        (row["n"], row["m"]): f"{np.median(row['seconds']):.3g} s, {max(row['megabytes']):.0f} MB"
        for row in rows
    }
    titles = ("N", *(f"m = {m}" for m in dimensions))
    return _table(
        titles,
        (
            (f"{n:,}", *(cells[n, m] for m in dimensions))
            for n in sorted({row["n"] for row in rows})
        ),
    )


def phase1() -> str:
    """The seconds of Phase 1."""
    measured = _measured("phase1")
    seconds = measured["seconds"]
    rows = [(name.replace("_", " "), f"{value:.1f}") for name, value in seconds.items()]
    rows.append(("together", f"{sum(seconds.values()):.1f}"))
    return _table((f"{measured['observations']:,} observations", "seconds"), rows)


def scaling() -> str:
    """Efficiency over the number of env runners."""
    rows = (
        (
            str(row["runners"]),
            f"{row['steps_per_second']:,.0f}",
            f"{row['efficiency']:.2f}",
            f"{1000 * row['driver_seconds']:.0f}",
            f"{1000 * row['learner_seconds']:.0f}",
            f"{1000 * row['bonus_seconds']:.1f}",
            f"{100 * row['bonus_share']:.2f} %",
        )
        for row in _measured("scaling")["rows"]
    )
    titles = (
        "env runners",
        "steps per second",
        "efficiency",
        "leading, ms",
        "update, ms",
        "bonus, ms",
        "its share",
    )
    return _table(titles, rows)


def model() -> str:
    """From how many env runners on one process computes for half of every iteration.

    With n env runners that have cores of their own an iteration takes W + P(n). W, waiting for
    their steps, is what it takes with one of them. P is what the process computes that leads and
    learns: a line through the table above, and c N^2 for the search of neighbours among N
    transitions, which small batches do not show, by the table of larger ones.
    """
    measured = _measured("scaling")
    rows, steps = measured["rows"], measured["steps_per_runner"]
    runners = np.array([row["runners"] for row in rows])
    [known] = [row for row in _measured("growth")["rows"] if (row["n"], row["m"]) == _SEARCH]
    search = np.median(known["seconds"]) / known["n"] ** 2
    square = search * steps**2
    updates = np.array([row["learner_seconds"] for row in rows]) - square * runners**2
    leads = np.array([row["driver_seconds"] for row in rows])
    (lead, lead_first), (update, update_first) = (
        np.polyfit(runners, one, 1) for one in (leads, updates)
    )
    first = lead_first + update_first
    waits = np.median(rows[0]["seconds"]) - (first + lead + update + square)
    even = max(np.roots([square, lead + update, first - waits]).real)  # P(n) = W
    return (
        f"Waiting for {steps} steps takes {waits:.2f} s. Leading takes {1000 * lead_first:.1f} ms "
        f"and {1000 * lead:.1f} ms for each env runner, an update {1000 * update_first:.1f} ms and "
        f"{1000 * update:.1f} ms for each; the search of neighbours {search:.1g} s times the "
        "square of the batch. If env runners had cores of their own, the process that leads and "
        f"learns would compute for half of every iteration from about {even:,.0f} of them on: "
        f"{lead_first + lead * even:.2f} s of leading, {update_first + update * even:.2f} s of "
        f"updates and {square * even**2:.2f} s of searching, for {even * steps:,.0f} transitions.\n"
    )


_MAKERS: dict[str, Callable[[], str]] = {
    maker.__name__: maker
    for maker in (
        *(figures, machine, speeds, profile),
        *(methods, growth, phase1, scaling, model),
    )
}


def page() -> str:
    """The page with fresh tables."""
    return _MARKERS.sub(lambda match: match[1] + _MAKERS[match[2]]() + match[3], PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
