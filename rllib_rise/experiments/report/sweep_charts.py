"""Drawings of a sweep: the metric over one parameter, and over a pair of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from rllib_rise.experiments.report.canvas import FAINT, HALF, INK, as_svg, house_style
from rllib_rise.experiments.statistics import Interval

_DOT, _LINE = "#8fb8d4", "#0072B2"
_WIDE = 30  # a range above this ratio is drawn on a logarithmic axis
_BRIGHT = 0.65  # of the colour scale: from there on dark text is easier to read
_APART = 0.08  # of the axis, between two values with names
_TICKS = 7  # as many values at most are named on the axis


@dataclass(frozen=True)
class Response:
    """The metric over one parameter, whatever the others were.

    Attributes:
        parameter: Its name.
        dots: Value and metric of every trial.
        means: By value, over the trials with it; empty where hardly any value comes twice.
    """

    parameter: str
    dots: Sequence[tuple[Any, float]]
    means: Mapping[Any, Interval]


def draw_response(name: str, response: Response, metric: str) -> str:
    """A dot per trial; where values repeat, the mean of each with its interval."""
    values = list(dict.fromkeys(value for value, _ in response.dots))
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    places = {value: value for value in values} if numbers else {v: i for i, v in enumerate(values)}
    with house_style():
        figure = Figure(figsize=(HALF, 2.9), layout="constrained")
        axes = figure.add_subplot()
        x = [places[value] for value, _ in response.dots]
        axes.plot(x, [y for _, y in response.dots], "o", color=_DOT, markersize=4, alpha=0.7)
        if response.means:
            ordered = sorted(response.means, key=lambda value: places[value])
            middle = [response.means[value] for value in ordered]
            centers = [places[value] for value in ordered]
            axes.plot(centers, [m.estimate for m in middle], "-", color=_LINE, linewidth=1.8)
            for place, mean in zip(centers, middle, strict=True):
                if np.isfinite(mean.low):
                    axes.plot([place, place], [mean.low, mean.high], color=_LINE, linewidth=1.2)
                axes.plot(place, mean.estimate, "o", color=_LINE, markersize=6)
        if not numbers:
            axes.set_xticks(list(places.values()), [str(value) for value in places])
        elif min(values) > 0 and max(values) / min(values) > _WIDE:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        if numbers and len(values) <= _TICKS and _apart(values, axes.get_xscale() == "log"):
            axes.set_xticks(values, [_text(value) for value in values])
            axes.set_xticks([], minor=True)
        _finish(axes, response.parameter, metric)
        return as_svg(figure, name, f"{metric} over {response.parameter}")


def draw_pair(
    name: str, parameters: tuple[str, str], cells: Mapping[tuple[Any, Any], float], metric: str
) -> str:
    """The mean metric in every cell of a grid of two parameters."""
    rows, columns = (sorted({key[i] for key in cells}, key=_order) for i in (0, 1))
    grid = np.full((len(rows), len(columns)), np.nan)
    for (row, column), value in cells.items():
        grid[rows.index(row), columns.index(column)] = value
    with house_style():
        figure = Figure(figsize=(HALF, 1.2 + 0.4 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(grid, cmap="viridis", aspect="auto")
        low, high = np.nanmin(grid), np.nanmax(grid)
        for (row, column), value in np.ndenumerate(grid):
            if np.isfinite(value):
                color = INK if value > low + _BRIGHT * (high - low) else "white"
                axes.text(column, row, f"{value:.3g}", ha="center", va="center", color=color)
        axes.set_xticks(range(len(columns)), [_text(value) for value in columns])
        axes.set_yticks(range(len(rows)), [_text(value) for value in rows])
        axes.grid(visible=False)
        axes.set_xlabel(parameters[1])
        axes.set_ylabel(parameters[0])
        axes.set_title(f"mean {metric}", loc="left", fontsize=10, fontweight="bold", color=INK)
        return as_svg(figure, name, f"{metric} over {parameters[0]} and {parameters[1]}")


def _finish(axes: Axes, parameter: str, metric: str) -> None:
    title = f"{metric} over {parameter}"
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    axes.set_xlabel(parameter)
    axes.spines["bottom"].set_color(FAINT)


def _apart(values: Sequence[float], logarithmic: bool) -> bool:
    """Whether the values can be named on an axis without touching each other."""
    places = np.sort(np.log(values) if logarithmic else np.asarray(values, dtype=float))
    return bool(np.diff(places).min() > _APART * (places[-1] - places[0]))


def _order(value: Any) -> tuple[bool, Any]:
    """Numbers by size, behind them words."""
    return (isinstance(value, str), value)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
