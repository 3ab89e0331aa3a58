"""Drawings over environment steps: curves, and dots at the first goal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from rllib_rise.experiments.report.canvas import FAINT, HALF, INK, as_svg, house_style

_LEGEND_LINE = 0.17  # inches
_MAX_DIRECT_LABELS, _MAX_DIRECT_LENGTH = 6, 18
_LABEL_GAP = 0.085
_ROUND_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Curve:
    """One line over environment steps.

    Attributes:
        label: Its name; lines without one are explained by the caption.
        color: Any matplotlib colour.
        steps: Environment steps [n].
        values: What is drawn over them [n].
        band: Lower and upper ends of a band around the values, [n] each.
        kind: `main`, a thin `seed`, or a thin dashed `unfinished` seed.
    """

    label: str
    color: str
    steps: Sequence[float]
    values: Sequence[float]
    band: tuple[Sequence[float], Sequence[float]] | None = None
    kind: Literal["main", "seed", "unfinished"] = "main"


def draw_curves(
    name: str,
    curves: Sequence[Curve],
    y_label: str,
    *,
    limits: tuple[float, float] | None = None,
    logarithmic: bool = False,
) -> str:
    """Lines over environment steps, labelled at their right ends where that is readable.

    Args:
        name: Unique on the page; element ids begin with it.
        curves: What to draw.
        y_label: What the values are; also the text for screen readers.
        limits: Of the y axis; from the data if None.
        logarithmic: Whether equal ratios get equal heights; values must be positive.
    """
    with house_style():
        labelled = [curve for curve in curves if curve.label]
        height = 2.9 + _LEGEND_LINE * max(0, math.ceil(len(labelled) / _columns(labelled)) - 3)
        figure = Figure(figsize=(HALF, height), layout="constrained")
        axes = figure.add_subplot()
        for curve in curves:
            _draw_curve(axes, curve)
        axes.set_xlim(0, max(curve.steps[-1] for curve in curves))
        values = np.concatenate([curve.values for curve in curves])
        if limits is None and np.ptp(values) == 0:  # a flat line needs no magnifying glass
            half = max(abs(float(values[0])), 1.0) / 2
            limits = (float(values[0]) - half, float(values[0]) + half)
        if limits is not None:
            axes.set_ylim(*limits)
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=_ROUND_STEPS))
        _finish(axes, y_label)
        _label_curves(figure, axes, labelled)
        return as_svg(figure, name, f"{y_label} over environment steps")


def draw_first_goals(
    name: str, steps: Mapping[str, Sequence[float | None]], colors: Mapping[str, str], budget: int
) -> str:
    """A dot per run at the steps to its first goal; runs that never got there at the budget.

    Args:
        name: Unique on the page; element ids begin with it.
        steps: Per method the steps of each run, or None if it never reached the goal.
        colors: Per method any matplotlib colour.
        budget: Environment steps of a run.
    """
    with house_style():
        figure = Figure(figsize=(HALF, max(1.6, 0.8 + 0.5 * len(steps))), layout="constrained")
        axes = figure.add_subplot()
        for place, (method, values) in enumerate(steps.items()):
            _draw_dots(axes, place, values, colors[method], budget)
        axes.axvline(budget, color=FAINT, linewidth=1, zorder=0)
        axes.set_yticks(range(len(steps)), list(steps))
        for tick, method in zip(axes.get_yticklabels(), steps, strict=True):
            tick.set(color=colors[method], fontweight="bold")
        axes.set_ylim(len(steps) - 0.5, -0.5)
        axes.set_xlim(0, budget)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(False, axis="y")
        _finish(axes, "first goal")
        return as_svg(figure, name, "Environment steps to the first goal, a dot per run")


def _draw_curve(axes: Axes, curve: Curve) -> None:
    main = curve.kind == "main"
    axes.plot(
        curve.steps,
        curve.values,
        color=curve.color,
        linewidth=1.8 if main else 0.8,
        alpha=1.0 if main else 0.4,
        linestyle="--" if curve.kind == "unfinished" else "-",
        marker="o" if len(curve.steps) == 1 else None,
        solid_joinstyle="round",
        zorder=3 if main else 2,
    )
    if curve.band is not None:
        axes.fill_between(curve.steps, *curve.band, color=curve.color, alpha=0.15, lw=0)


def _columns(curves: Sequence[Curve]) -> int:
    """Of a legend with these names."""
    longest = max((len(curve.label) for curve in curves), default=0)
    return max(1, min(len(curves), 60 // (longest + 6)))


def _label_curves(figure: Figure, axes: Axes, curves: Sequence[Curve]) -> None:
    if not curves:
        return
    longest = max(len(curve.label) for curve in curves)
    if len(curves) > _MAX_DIRECT_LABELS or longest > _MAX_DIRECT_LENGTH:
        handles = [Line2D([], [], color=curve.color, label=curve.label) for curve in curves]
        figure.legend(handles=handles, loc="outside lower left", ncols=_columns(curves))
        return
    axes.set_ylim(*axes.get_ylim())
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = [to_axes.transform((0, curve.values[-1]))[1] for curve in curves]
    for curve, height in zip(curves, _spread_out(ends), strict=True):
        axes.annotate(
            curve.label,
            (1.0, height),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=curve.color,
            fontweight="bold",
        )


def _spread_out(heights: Sequence[float]) -> list[float]:
    """Move labels apart to `_LABEL_GAP`, in order, around where they belong."""
    order = np.argsort(heights, kind="stable")
    # Least squares under a minimal gap: with i gaps taken off, the heights must not decrease, and
    # pooling neighbours that do gives the closest such sequence.
    pools: list[list[float]] = []
    for rank, index in enumerate(order):
        pools.append([heights[index] - rank * _LABEL_GAP])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    flat = [float(np.mean(pool)) for pool in pools for _ in pool]
    placed = [0.0] * len(flat)
    for rank, index in enumerate(order):
        placed[index] = flat[rank] + rank * _LABEL_GAP
    return placed


def _draw_dots(
    axes: Axes, place: int, values: Sequence[float | None], color: str, budget: int
) -> None:
    # Dots of one method fan out, so that equal ones can be counted.
    offsets = np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else np.zeros(1)
    dots = list(zip(values, place + offsets, strict=True))
    reached = [(value, height) for value, height in dots if value is not None]
    never = [(budget, height) for value, height in dots if value is None]
    style: dict[str, Any] = {"linestyle": "none", "color": color, "clip_on": False, "markersize": 6}
    if reached:
        axes.plot(*zip(*reached, strict=True), marker="o", alpha=0.85, **style)
    if never:
        axes.plot(*zip(*never, strict=True), marker=">", mfc="white", **style)
        text = f"never ({len(never)} of {len(values)})"
        axes.annotate(text, (budget, place), xytext=(9, 0), textcoords="offset points", va="center")


def _finish(axes: Axes, title: str) -> None:
    """The title, and the axis of environment steps."""
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    millions = axes.get_xlim()[1] >= 2e6
    axes.set_xlabel("environment steps" + (" (millions)" if millions else ""))
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=_ROUND_STEPS))
    scale = 1e6 if millions else 1
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:,g}"))
