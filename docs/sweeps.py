"""Writes the tables of committed sweeps into docs/sweeps.md: `python docs/sweeps.py`.

The page asks for one by `<!-- sweep: NAME -->` and `<!-- end -->`: that of results/sweeps/NAME,
which `rise tune tune_experiments/NAME.yaml` made.
"""

from __future__ import annotations

import csv
import re
from itertools import groupby, permutations
from pathlib import Path

from scipy import stats

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sweeps.md"
RESULTS = ROOT / "results" / "sweeps"
_MARKERS = re.compile(r"(<!-- sweep: ([\w/]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FIGURES = ("trials", "finished", "return", "low", "high")
_METRIC = "return"

Rows = list[dict[str, str]]


def table(name: str) -> str:
    """A sweep's settings, and how surely its parameters matter."""
    settings, trials = _read(name, "settings"), _read(name, "trials")
    parameters = [column for column in settings[0] if column not in _FIGURES]
    if len(parameters) == 1:
        return _list(settings, parameters[0]) + _tests(trials, parameters)
    return _grid(settings, *parameters) + _tests(trials, parameters)


def _read(name: str, file: str) -> Rows:
    with (RESULTS / name / f"{file}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def _list(settings: Rows, parameter: str) -> str:
    rows = sorted(settings, key=lambda row: _order(row[parameter]))
    lines = [f"| {parameter} | return |", "|---|---|"]
    lines += [f"| {row[parameter]} | {_cell(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _grid(settings: Rows, down: str, across: str) -> str:
    cells = {(row[down], row[across]): _cell(row) for row in settings}
    columns = sorted({key[1] for key in cells}, key=_order)
    lines = [f"| {down} | {' | '.join(f'{across} = {column}' for column in columns)} |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for value in sorted({key[0] for key in cells}, key=_order):
        lines.append(f"| {value} | {' | '.join(cells[value, column] for column in columns)} |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, str]) -> str:
    estimate, low, high = (float(row[key]) for key in (_METRIC, "low", "high"))
    return f"{estimate:.2f} [{low:.2f}, {high:.2f}]"


def _tests(trials: Rows, parameters: list[str]) -> str:
    """Whether each parameter matters; and where there are two, each at every value of the other."""
    told = [f"{parameter} {_friedman(trials, parameter, parameters)}" for parameter in parameters]
    for one, other in permutations(parameters) if len(parameters) == 2 else ():
        for value in sorted({row[other] for row in trials}, key=_order):
            some = [row for row in trials if row[other] == value]
            told.append(f"{one} at {other} = {value} {_friedman(some, one, parameters)}")
    return f"\nWhether it matters (Friedman): {', '.join(told)}.\n"


def _friedman(trials: Rows, parameter: str, parameters: list[str]) -> str:
    """Friedman's test: the values of a parameter compared where all else is equal."""
    rest = [key for key in (*parameters, "seed") if key != parameter]

    def block(row: dict[str, str]) -> tuple[str, ...]:
        return tuple(row[key] for key in rest)

    blocks = [
        [float(row[_METRIC]) for row in sorted(found, key=lambda row: _order(row[parameter]))]
        for _, found in groupby(sorted(trials, key=block), key=block)
    ]
    return f"p = {stats.friedmanchisquare(*zip(*blocks, strict=True)).pvalue:.2g}"


def _order(value: str) -> tuple[bool, float, str]:
    try:
        return False, float(value), ""
    except ValueError:  # `auto`
        return True, 0.0, value


def page() -> str:
    """The page with fresh tables."""
    return _MARKERS.sub(lambda match: match[1] + table(match[2]) + match[3], PAGE.read_text())


def shown() -> list[str]:
    """The sweeps that the page asks for."""
    return [match[2] for match in _MARKERS.finditer(PAGE.read_text())]


if __name__ == "__main__":
    PAGE.write_text(page())
