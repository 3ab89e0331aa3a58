"""Writes what was reproduced into docs/reproduction.md: `python docs/reproduction.py`.

The page asks for a table by `<!-- reproduction: NAME -->` and `<!-- end -->`; tables, and the
figures that the page shows, are made from results/reproduce, which `rise reproduce` wrote.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rllib_rise.bench.throughput import draw as draw_speeds
from rllib_rise.bench.throughput import speeds
from rllib_rise.experiments.reproduce import contours, deep, maze, theory
from rllib_rise.experiments.reproduce.record import write_figure
from rllib_rise.experiments.tables import read_rows

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
RESULTS = ROOT / "results" / "reproduce"
BENCHMARK = ROOT / "benchmarks" / "results"
_MARKERS = re.compile(r"(<!-- reproduction: ([\w/]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]


def _table(rows: Sequence[Row], columns: Iterable[str] | None = None) -> str:
    columns = list(columns or rows[0])
    lines = [columns, ["---"] * len(columns)]
    lines += [[_text(row[name]) for name in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def order() -> str:
    """Rank correlations with the cover time."""
    return _table(read_rows(RESULTS / "contours" / "order.csv"))


def size() -> str:
    """How far everything falls where a state is rare."""
    return _table(read_rows(RESULTS / "contours" / "size.csv"))


def iterations() -> str:
    """The theorem's iterations, and those that were needed."""
    rows = read_rows(RESULTS / "theory" / "iterations.csv")
    columns = ("process", "alpha", "theorem", "needed, exact", "needed, perturbed")
    columns += ("lost by smoothing",)
    return _table(rows, columns)


def cover_times() -> str:
    """Expected draws by process, a column for each order."""
    rows = read_rows(RESULTS / "theory" / "cover_times.csv")
    found: dict[str, Row] = {}
    for row in rows:
        line = found.setdefault(row["process"], {"process": row["process"]})
        line[f"alpha {row['alpha']}"] = f"{row['expected draws']:.1f}"
    return _table(list(found.values()))


def smoothing() -> str:
    """What the theorem asks for if smoothing is to cost nothing."""
    return _table(read_rows(RESULTS / "theory" / "smoothing.csv"))


def mazes(layout: str, size: int) -> str:
    """The arms in one kind of maze."""
    rows = [
        {
            "arm": row["arm"],
            "mean steps": f"{row['mean']:,} [{row['low']:,}, {row['high']:,}]",
            "median": f"{row['median']:,.0f} [{_limit(row['median, low'])}, "
            f"{_limit(row['median, high'])}]",
            "given up": row["given up"],
            "better than Q-learning": _share(row["better than Q-learning"]),
            "worse": _share(row["worse"]),
        }
        for row in read_rows(RESULTS / "maze" / "summary.csv")
        if (row["layout"], row["size"]) == (layout, size)
    ]
    return _table(rows)


def pairs() -> str:
    """Small orders against Shannon's."""
    rows = [
        {
            "mazes": f"{row['layout']}, {row['size']} x {row['size']}",
            "first": row["first"],
            "second": row["second"],
            "ratio of means": f"{row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]",
            "first faster": _share(row["better"]),
            "slower": _share(row["worse"]),
            "p": f"{row['p']:.2g}",
        }
        for row in read_rows(RESULTS / "maze" / "pairs.csv")
    ]
    return _table(rows)


def deep_table(name: str) -> str:
    """Returns beside the paper's, under a line that says how far they were trained."""
    runs = read_rows(RESULTS / name / "runs.csv")
    rows = deep.paper_table(deep.SUITES[name], runs)
    for row in rows:
        row["task"] = row["task"].replace("_", " ")
    return f"{deep.title(deep.SUITES[name], runs).capitalize()}:\n\n" + _table(rows)


def throughput() -> str:
    """Steps per second of the paper's methods."""
    return _table(_speeds())


def _speeds() -> list[Row]:
    return speeds(json.loads((BENCHMARK / "methods.json").read_text())["measured"])


def _limit(value: float) -> str:
    return "given up" if value == math.inf else f"{value:,.0f}"


def _share(value: Any) -> str:
    return "" if value == "" else f"{value:.0%}"


_MAKERS: dict[str, Callable[[], str]] = {
    maker.__name__: maker
    for maker in (order, size, iterations, cover_times, smoothing, pairs, throughput)
}
for _layout in maze.LAYOUTS:
    for _size in (5, 10, 20):
        _MAKERS[f"{_layout}_{_size}"] = lambda a=_layout, b=_size: mazes(a, b)  # type: ignore[misc]
for _name in deep.SUITES:
    _MAKERS[_name] = lambda name=_name: deep_table(name)  # type: ignore[misc]


def figures() -> dict[Path, str]:
    """The figures, drawn from the committed rows."""
    bounds, covers = (
        read_rows(RESULTS / "theory" / f"{name}.csv") for name in ("iterations", "cover_times")
    )
    return {
        RESULTS / "contours" / "contours.svg": contours.draw(
            read_rows(RESULTS / "contours" / "contours.csv")
        ),
        RESULTS / "theory" / "theory.svg": theory.draw(bounds, covers),
        BENCHMARK / "throughput.svg": draw_speeds(_speeds()),
        RESULTS / "maze" / "maze.svg": maze.draw(read_rows(RESULTS / "maze" / "summary.csv")),
        **{
            RESULTS / name / "curves.svg": deep.draw_curves(
                read_rows(RESULTS / name / "curves.csv")
            )
            for name in deep.SUITES
            if (RESULTS / name).exists()
        },
    }


def page() -> str:
    """The page with fresh tables."""
    return _MARKERS.sub(lambda match: match[1] + _MAKERS[match[2]]() + match[3], PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
    for path, svg in figures().items():
        write_figure(path, svg)
