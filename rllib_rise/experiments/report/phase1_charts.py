"""Charts of Phase 1: the search for k, the training of the encoder, and the time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from rllib_rise.experiments.report.canvas import FAINT, HALF, INK, as_svg, house_style

_TOP = 0.95  # the height of what is infinite, as a share of the axis
_LARGEST = 1e100  # in many dimensions a ratio can be beyond what an axis can show


def draw_k_search(
    name: str, ratios: Sequence[float | None], chosen: int, color: str, title: str
) -> str:
    """The ratio of the subsets' estimates over k, with the chosen k marked.

    Args:
        name: Unique on the page; element ids begin with it.
        ratios: For k = 1, 2, ...; None where infinite, which is drawn at the top.
        chosen: The k in use.
        color: Of the curve.
        title: Over the figure.
    """
    ratios = [None if ratio is None or ratio > _LARGEST else ratio for ratio in ratios]
    finite = [ratio for ratio in ratios if ratio is not None]
    infinite = [k for k, ratio in enumerate(ratios, 1) if ratio is None]
    with house_style():
        figure = Figure(figsize=(HALF, 2.9), layout="constrained")
        axes = figure.add_subplot()
        axes.set_yscale("log")
        # The finite ones leave room for the row of the infinite ones above them.
        highest = math.log10(max(1.05, *finite)) if finite else 1.0
        axes.set_ylim(0.985, 10 ** (highest * (1.25 if infinite else 1.08)))
        axes.set_xlim(0.5, len(ratios) + 0.5)
        if 1 <= chosen <= len(ratios):
            axes.axvline(chosen, color=FAINT, linewidth=1, zorder=1)
        heights = [math.nan if ratio is None else ratio for ratio in ratios]  # a gap in the line
        k = range(1, len(ratios) + 1)
        axes.plot(k, heights, "o-", color=color, ms=4, lw=1.6, gid="ratios")
        top = axes.get_xaxis_transform()
        style: dict[str, Any] = {"transform": top, "clip_on": False, "mfc": "white", "mec": color}
        axes.plot(infinite, [_TOP] * len(infinite), "^", ms=6, gid="infinite", **style)
        if infinite:
            axes.annotate(
                "∞",
                (0, _TOP),
                xycoords="axes fraction",
                xytext=(-8, 0),
                textcoords="offset points",
                ha="right",
                va="center",
            )
        if 1 <= chosen <= len(ratios):
            _mark_k(axes, chosen, ratios[chosen - 1], len(ratios), color)
        _number_axis(axes)
        axes.xaxis.set_major_locator(_whole_numbers(15 if len(ratios) <= 15 else 8))
        axes.set_xlabel("k")
        _title(axes, title)
        return as_svg(figure, name, f"{title}: ratio over k, k = {chosen} was chosen")


def draw_losses(
    name: str, lines: Mapping[str, Mapping[int, float]], best: int, color: str, title: str
) -> str:
    """Losses over epochs, with one point of the first line marked.

    Args:
        name: Unique on the page; element ids begin with it.
        lines: Per label the loss of each epoch.
        best: The epoch to mark.
        color: Of the first line; others are grey.
        title: Over the figure.
    """
    with house_style():
        figure = Figure(figsize=(HALF, 2.9), layout="constrained")
        axes = figure.add_subplot()
        for place, (label, line) in enumerate(lines.items()):
            look: dict[str, Any] = {"color": color, "lw": 1.8}
            if place:
                look = {"color": INK, "lw": 1.1, "ls": "--"}
            marker = "o" if len(line) == 1 else None
            axes.plot(list(line), list(line.values()), label=label, marker=marker, ms=4, **look)
        values = [value for line in lines.values() for value in line.values()]
        if min(values) > 0 and max(values) > 4 * min(values):
            axes.set_yscale("log")
        _number_axis(axes)
        height = next(iter(lines.values()))[best]
        axes.plot([best], [height], "o", ms=8, mfc="white", mec=color, mew=1.8, gid="best")
        axes.xaxis.set_major_locator(_whole_numbers(6))
        axes.set_xlabel("epoch")
        axes.legend(loc="upper right")
        _title(axes, title)
        return as_svg(figure, name, f"{title}: loss over epochs, lowest at epoch {best}")


def draw_seconds(name: str, seconds: Mapping[str, float], color: str, title: str) -> str:
    """A bar per step of Phase 1, with its seconds and its share.

    Args:
        name: Unique on the page; element ids begin with it.
        seconds: Per step, in order.
        color: Of the bars.
        title: Over the figure.
    """
    total = sum(seconds.values()) or 1.0
    with house_style():
        figure = Figure(figsize=(HALF, 0.6 + 0.28 * len(seconds)), layout="constrained")
        axes = figure.add_subplot()
        axes.barh(range(len(seconds)), list(seconds.values()), height=0.62, color=color)
        for place, value in enumerate(seconds.values()):
            share = value / total
            text = f"{seconds_text(value)}, {'<1' if 0 < share < 0.005 else f'{100 * share:.0f}'} %"
            axes.annotate(
                text, (value, place), xytext=(5, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(range(len(seconds)), list(seconds))
        axes.set_ylim(len(seconds) - 0.5, -0.5)
        # Room for the text behind the longest bar.
        axes.set_xlim(0, (max(seconds.values()) or 1.0) * 1.35)
        axes.set_xticks([])
        axes.tick_params(axis="y", length=0)
        axes.grid(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        _title(axes, title)
        return as_svg(figure, name, title)


def seconds_text(value: float) -> str:
    """Seconds with as many digits as one wants to read."""
    digits = ".2g" if value < 1 else ".1f" if value < 100 else ",.0f"
    return f"{value:{digits}} s"


def _mark_k(axes: Axes, k: int, ratio: float | None, k_max: int, color: str) -> None:
    infinite = ratio is None
    place = axes.get_xaxis_transform() if infinite else axes.transData
    height = _TOP if ratio is None else ratio
    mark: dict[str, Any] = {"marker": "o", "ms": 9, "color": color, "clip_on": False}
    axes.plot([k], [height], transform=place, gid="chosen", **mark)
    left = k > 0.75 * k_max
    # Below the mark, where the curve is not, unless the axis is too near.
    above = ratio is not None and math.log(ratio) < 0.25 * math.log(axes.get_ylim()[1])
    axes.annotate(
        f"k = {k}" if infinite else f"k = {k}: {ratio:.3g}",
        (k, height),
        xycoords=place,
        xytext=(-8 if left else 8, 9 if above else -9),
        textcoords="offset points",
        ha="right" if left else "left",
        va="bottom" if above else "top",
        color=color,
        fontweight="bold",
    )


def _whole_numbers(most: int) -> MaxNLocator:
    return MaxNLocator(most, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10])


def _number_axis(axes: Axes) -> None:
    """Plain numbers on the y axis; on a short logarithmic one, round steps instead of powers."""
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    if axes.get_yscale() == "log":
        axes.yaxis.set_minor_locator(NullLocator())
        if high > 8 * low:
            subs = (1, 2, 5) if high < 200 * low else (1,)
            axes.yaxis.set_major_locator(LogLocator(10, subs=subs, numticks=8))
            return
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def _title(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
