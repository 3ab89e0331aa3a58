"""The paper's first figure: which entropy looks like the time to see every state.

Over all distributions of three states: -log of the expected cover time, Shannon's entropy, and
Rényi's for several orders. Beside the picture two numbers that do not depend on an eye. The order:
the rank correlation of each entropy with -log of the cover time, over the whole triangle and where
a state is rare. The size: by how much each falls from the middle to where one state has a small
probability x and the others share the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from rllib_rise.experiments.report.canvas import FULL, as_svg, house_style
from rllib_rise.experiments.reproduce.record import OnProgress, write_figure
from rllib_rise.experiments.tables import read_rows, write_rows
from rllib_rise.tabular import discrete_renyi_entropy, expected_cover_time
from rllib_rise.tabular.entropies import FloatArray

ORDERS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.5, 2.0)
COVER = "-log of the cover time"
RARE = 0.05
_DRAWN = (0.1, 0.5, 1.0, 2.0)
_PROBABILITIES = (0.1, 0.01, 0.001, 0.0001)
# Points per side: of the numbers, which they no longer depend on, and of the picture.
_MANY = {"small": 100, "workstation": 400, "paper": 400}
_FEW = 60
_LEVELS = 14

Row = dict[str, Any]


def contours(out: Path, scale: str, on_progress: OnProgress) -> list[tuple[str, list[Row]]]:
    """Write the figure, what it shows, and the numbers.

    Returns:
        Tables: a title and rows each.
    """
    on_progress("cover times and entropies of three states")
    order, size = correlations(_MANY[scale]), falls()
    write_rows(out / "order.csv", order)
    write_rows(out / "size.csv", size)
    p = triangle(_FEW)
    columns = {f"p{i}": column for i, column in enumerate(p.T, start=1)} | values_at(p, _DRAWN)
    rows = [
        {name: float(value) for name, value in zip(columns, line, strict=True)}
        for line in zip(*columns.values(), strict=True)
    ]
    write_rows(out / "contours.csv", rows)
    write_figure(out / "contours.svg", draw(read_rows(out / "contours.csv")))
    return [
        (f"rank correlation with {COVER}", order),
        ("fall from equal probabilities to one of x", size),
    ]


def triangle(points: int) -> FloatArray:
    """Distributions of three states on a grid, none with a probability of 0, [n, 3]."""
    first, second = np.meshgrid(np.arange(points), np.arange(points), indexing="ij")
    inside = first + second < points
    p = np.stack((first[inside], second[inside], points - 1 - (first + second)[inside]), axis=1)
    return (p + 1 / 3) / points


def values_at(p: FloatArray, orders: Sequence[float]) -> dict[str, FloatArray]:
    """-log of the cover time, and the entropies, of distributions [n, 3]."""
    found = {COVER: -np.log(expected_cover_time(p))}
    return found | {_name(alpha): discrete_renyi_entropy(p, alpha) for alpha in orders}


def correlations(points: int) -> list[Row]:
    """How much the order of the distributions is the same."""
    p = triangle(points)
    found = values_at(p, ORDERS)
    cover, rim = found.pop(COVER), p.min(axis=1) < RARE
    return [
        {
            "entropy": name,
            "all distributions": float(stats.spearmanr(values, cover).statistic),
            f"a state below {RARE}": float(stats.spearmanr(values[rim], cover[rim]).statistic),
        }
        for name, values in found.items()
    ]


def falls() -> list[Row]:
    """How much lower everything is where one state is rare."""
    rare = np.array(_PROBABILITIES)
    p = np.stack((rare, (1 - rare) / 2, (1 - rare) / 2), axis=1)
    top = values_at(np.full((1, 3), 1 / 3), ORDERS)
    return [
        {"": name}
        | {f"x = {x:g}": float(top[name][0] - value) for x, value in zip(rare, found, strict=True)}
        for name, found in values_at(p, ORDERS).items()
    ]


def draw(rows: Sequence[Row]) -> str:
    """A triangle for each column but the probabilities."""
    p = np.array([[row["p1"], row["p2"], row["p3"]] for row in rows])
    x, y = (p @ np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])).T
    titles = [name for name in rows[0] if name not in ("p1", "p2", "p3")]
    with house_style():
        figure = Figure(figsize=(FULL, 2.4), layout="constrained", dpi=150)
        for place, title in enumerate(titles, start=1):
            axes = figure.add_subplot(1, len(titles), place)
            values = [row[title] for row in rows]
            # Levels at equal shares of the triangle: what counts is the shape, not the unit.
            levels = np.unique(np.quantile(values, np.linspace(0, 1, _LEVELS)))
            drawn = axes.tricontourf(x, y, values, levels=levels, cmap="viridis")
            drawn.set_rasterized(True)  # as shapes they are a megabyte
            axes.set_title(title, fontsize=9)
            axes.set_aspect("equal")
            axes.set_axis_off()
        return as_svg(figure, "contours", "Contours over the distributions of three states")


def _name(alpha: float) -> str:
    return "Shannon (α = 1)" if alpha == 1 else f"Rényi, α = {alpha:g}"
