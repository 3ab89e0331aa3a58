"""Writes the tables of committed comparisons into the pages: `python docs/comparisons.py`.

A page asks for one by `<!-- comparison: NAME -->` and `<!-- end -->`: that of results/NAME, which
`rise compare configs/NAME.yaml` made.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

from rllib_rise.experiments.display import interval_text
from rllib_rise.experiments.statistics import iqm

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
# Where some method's return is at least this, it is told how early.
_LEARNED = 0.5
# What environments tell of the episodes in a run's last tenth: mean over runs.
_TOLD = {"key taken": "key_taken", "door opened": "door_opened"}
# Columns that not all comparisons have: (figure, unit).
_EXTRA = {
    "bonus, last over first tenth": ("bonus_left", 1),
    "bonus, ms per update": ("bonus_seconds", 0.001),
    "MB kept": ("bonus_megabytes", 1),
}
_MARKERS = re.compile(r"(<!-- comparison: ([\w/]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(name: str, *, brief: bool = False) -> str:
    """The summary of a comparison as a Markdown table; a brief one does not speak of the bonus."""
    folder = ROOT / "results" / name
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    with (folder / "runs.csv").open() as stream:
        runs = list(csv.DictReader(stream))
    told = {title: column for title, column in _TOLD.items() if column in runs[0]}
    learned = not brief and any(
        values["figures"]["return"]["estimate"] >= _LEARNED for values in methods.values()
    )
    columns = ["method", "coverage", "return", "goal reached", "median steps to it"]
    columns += ["return at half the budget"] if learned else []
    extra = {
        title: (figure, unit)
        for title, (figure, unit) in _EXTRA.items()
        if not brief and any(figure in values for values in methods.values())
    }
    columns += [*told, *extra]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for method, values in methods.items():
        figures, goal = values["figures"], values["goal"]
        cells = [
            method,
            _interval(figures["coverage"], values["runs"]),
            _interval(figures["return"], values["runs"]),
            f"{goal['reached']} of {values['runs']}",
            interval_text(goal["median_steps"], digits=0),
        ]
        own = [run for run in runs if run["method"] == method]
        if learned:
            halves = [float(run["return_at_half"]) for run in own if run.get("return_at_half")]
            cells.append(f"{iqm([halves]):.2f}" if halves else "")
        cells += [f"{mean(float(run[column]) for run in own):.0%}" for column in told.values()]
        for figure, unit in extra.values():
            cells.append(_number(values[figure] / unit) if figure in values else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _interval(figure: dict[str, Any], runs: int) -> str:
    """An estimate and, from three runs on, its interval."""
    return interval_text(figure) if runs >= 3 else f"{figure['estimate']:.2f}"


def _number(value: float) -> str:
    if value < 0.0005:
        return "< 0.001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def pages() -> dict[Path, str]:
    """The pages with fresh tables."""
    return {page: _fresh(page) for page in PAGES}


def _fresh(page: Path) -> str:
    brief = page.name == "README.md"
    return _MARKERS.sub(
        lambda match: match[1] + table(match[2], brief=brief) + match[3], page.read_text()
    )


def shown() -> list[str]:
    """The comparisons that pages ask for."""
    return [match[2] for page in PAGES for match in _MARKERS.finditer(page.read_text())]


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
