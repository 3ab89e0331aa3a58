"""Drawings of where agents have been: heat maps of a grid of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from rllib_rise.experiments.report.canvas import FULL, HALF, INK, as_svg, house_style

_UNREACHABLE = "#4a4e52"
_UNVISITED: Any = {"facecolor": "#f1f2f3", "edgecolor": "#b9bdc1", "hatch": "//////"}
_MAPS_PER_ROW = 3


@dataclass(frozen=True)
class VisitMap:
    """Where an agent has been.

    Attributes:
        label: Whose visits these are.
        note: A short second line, for example the coverage.
        color: The colour of the label.
        visits: Visits per cell [size, size], possibly a mean over seeds.
        reachable: Cells that can be visited at all [size, size].
        walls: Ends (x, y) of a maze's walls between cells [walls, 2, 2]. A maze has its start at
            the top left and its goal at the bottom right.
        axes: What columns and rows are, where it is known.
    """

    label: str
    note: str
    color: str
    visits: NDArray[Any]
    reachable: NDArray[np.bool_]
    walls: NDArray[Any] | None = None
    axes: tuple[str, str] | None = None


def draw_visits(name: str, maps: Sequence[VisitMap]) -> str:
    """Heat maps side by side on one logarithmic colour scale, with one colour bar.

    Args:
        name: Unique on the page; element ids begin with it.
        maps: What to draw.
    """
    with house_style():
        columns = 2 if len(maps) == 4 else min(len(maps), _MAPS_PER_ROW)
        rows = -(-len(maps) // columns)
        width = {1: HALF, 2: 8.0}.get(columns, FULL)
        height = rows * ((width - 1.0) / columns + 0.5) + 0.5
        layout = ConstrainedLayoutEngine(wspace=0.04, hspace=0.04)
        figure = Figure(figsize=(width, height), layout=layout)
        grid = figure.subplots(rows, columns, squeeze=False)
        scale = _color_scale(maps)
        for axes, visit_map in zip(grid.flat, maps, strict=False):
            _draw_map(axes, visit_map, scale)
        for axes in grid.flat[len(maps) :]:
            axes.set_axis_off()
        bar = figure.colorbar(ScalarMappable(**scale), ax=grid, shrink=0.8, aspect=28, pad=0.015)
        bar.set_label("visits per cell (logarithmic)")
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_locator(LogLocator(10, subs=(1, 3)))
        bar.ax.yaxis.set_minor_locator(NullLocator())
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        figure.legend(handles=_legend(maps), loc="outside lower left", ncols=4)
        return as_svg(figure, name, "Visits per cell: " + ", ".join(m.label for m in maps))


def _color_scale(maps: Sequence[VisitMap]) -> dict[str, Any]:
    """The norm and the colour map that all maps share."""
    seen = np.concatenate([m.visits[m.visits > 0] for m in maps])
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (1.0, 1.0)
    # The darkest end is left out so that walls remain visible on it.
    colors = mpl.colormaps["YlGnBu"](np.linspace(0.12, 0.85, 256))
    return {
        "norm": LogNorm(low, max(high, 1.1 * low)),
        "cmap": LinearSegmentedColormap.from_list("visits", colors),
    }


def _draw_map(axes: Axes, visit_map: VisitMap, scale: dict[str, Any]) -> None:
    rows, columns = visit_map.visits.shape
    axes.patch.set(**_UNVISITED, linewidth=0)
    # `none` puts the cells into the SVG as they are; the browser enlarges them without blur.
    image: dict[str, Any] = {"interpolation": "none", "zorder": 1}
    axes.imshow(np.ma.masked_equal(visit_map.visits, 0), **scale, **image)
    closed = np.ma.masked_array(np.zeros((rows, columns)), visit_map.reachable)
    axes.imshow(closed, cmap=LinearSegmentedColormap.from_list("c", [_UNREACHABLE] * 2), **image)
    if visit_map.walls is not None:
        axes.add_collection(
            LineCollection(list(visit_map.walls), colors=INK, linewidths=0.8, zorder=2)
        )
        ends: Any = {"mfc": "white", "mec": "black", "mew": 1.2, "zorder": 4, "clip_on": False}
        axes.plot(0, 0, "o", ms=7, **ends)
        axes.plot(columns - 1, rows - 1, "*", ms=11, **ends)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK, linewidth=0.8)
    axes.set_title(visit_map.label, loc="left", color=visit_map.color, fontweight="bold")
    note = visit_map.note
    if visit_map.axes is not None:
        across, up = visit_map.axes
        note = f"{across} \N{RIGHTWARDS ARROW}\n{note}"
        axes.set_ylabel(f"{up} \N{RIGHTWARDS ARROW}")
    axes.set_xlabel(note, loc="left")


def _legend(maps: Sequence[VisitMap]) -> list[Any]:
    marker: dict[str, Any] = {"linestyle": "none", "mfc": "white", "mec": "black"}
    legend: list[Any] = [Patch(**_UNVISITED, label="never visited")]
    if any(visit_map.walls is not None for visit_map in maps):
        legend = [
            Line2D([], [], marker="o", markersize=7, label="start", **marker),
            Line2D([], [], marker="*", markersize=11, label="goal", **marker),
            *legend,
        ]
    if any(not visit_map.reachable.all() for visit_map in maps):
        legend.append(Patch(facecolor=_UNREACHABLE, label="cannot be reached"))
    return legend
