"""The paper's first figure: which entropy looks like the time to see every state.

Over all distributions of three states: -log of the expected cover time, Shannon's entropy, and
Rényi's for several orders. Beside the picture, a number: the rank correlation of each entropy with
-log of the cover time over the whole triangle, and over its rim, where a state is rare.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from rllib_rise.experiments.report.canvas import FULL, as_svg, house_style
from rllib_rise.experiments.reproduce.record import write_figure, write_rows
from rllib_rise.tabular import discrete_renyi_entropy, expected_cover_time
from rllib_rise.tabular.entropies import FloatArray

ORDERS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.5, 2.0)
_DRAWN = (0.1, 0.5, 1.0, 2.0)
_POINTS = {"small": 40, "workstation": 120, "paper": 120}
_RARE = 0.05
_LEVELS = 14


def contours(
    out: Path, scale: str, on_progress: Callable[[str], None]
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Write the figure and its data.

    Returns:
        Tables: a title and rows each.
    """
    on_progress("cover times and entropies of three states")
    p = triangle(_POINTS[scale])
    cover = -np.log(expected_cover_time(p))
    entropies = {alpha: discrete_renyi_entropy(p, alpha) for alpha in ORDERS}
    rim = p.min(axis=1) < _RARE
    rows = [
        {
            "alpha": alpha,
            "rank correlation": float(stats.spearmanr(values, cover).statistic),
            f"where a state is below {_RARE}": float(
                stats.spearmanr(values[rim], cover[rim]).statistic
            ),
        }
        for alpha, values in entropies.items()
    ]
    write_rows(out / "contours.csv", rows)
    drawn = {"-log of the cover time": cover}
    drawn |= {
        "Shannon (α = 1)" if alpha == 1 else f"Rényi, α = {alpha:g}": entropies[alpha]
        for alpha in _DRAWN
    }
    write_figure(out / "contours.svg", _draw(p, drawn))
    return [("how much the entropies look like -log of the cover time", rows)]


def triangle(points: int) -> FloatArray:
    """Distributions of three states on a grid, none with a probability of 0, [n, 3]."""
    first, second = np.meshgrid(np.arange(points), np.arange(points), indexing="ij")
    inside = first + second < points
    p = np.stack((first[inside], second[inside], points - 1 - (first + second)[inside]), axis=1)
    return (p + 1 / 3) / points


def _draw(p: FloatArray, drawn: dict[str, FloatArray]) -> str:
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
    x, y = (p @ corners).T
    with house_style():
        figure = Figure(figsize=(FULL, 2.4), layout="constrained", dpi=150)
        for place, (title, values) in enumerate(drawn.items(), start=1):
            axes = figure.add_subplot(1, len(drawn), place)
            # Levels at equal shares of the triangle: what counts is the shape, not the unit.
            levels = np.unique(np.quantile(values, np.linspace(0, 1, _LEVELS)))
            drawn_contours = axes.tricontourf(x, y, values, levels=levels, cmap="viridis")
            drawn_contours.set_rasterized(True)  # as shapes they are a megabyte
            axes.set_title(title, fontsize=9)
            axes.set_aspect("equal")
            axes.set_axis_off()
        return as_svg(figure, "contours", "Contours over the distributions of three states")
