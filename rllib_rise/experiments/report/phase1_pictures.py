"""Pictures of Phase 1: what the encoder makes of observations, and its embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from rllib_rise.experiments.report.canvas import FAINT, HALF, INK, as_svg, house_style

_PICTURES_PER_ROW = 4
# Dots become a picture of their own; thousands of them as shapes would make the page heavy.
_DOTS_PER_INCH = 220


def draw_pictures(
    name: str,
    originals: NDArray[Any],
    reconstructions: NDArray[Any],
    errors: Sequence[float],
    title: str,
) -> str:
    """Rows of originals, each with the row of their reconstructions below.

    Args:
        name: Unique on the page; element ids begin with it.
        originals: Bytes, gray [n, H, W] or coloured [n, H, W, 3].
        reconstructions: The same shape.
        errors: What stands below each reconstruction [n].
        title: Over the figure.
    """
    count, height, width = originals.shape[:3]
    blocks = -(-count // _PICTURES_PER_ROW)
    side = (HALF - 0.3) / _PICTURES_PER_ROW * min(max(height / width, 0.9), 2.0)
    with house_style():
        figure = Figure(figsize=(HALF, 0.35 + blocks * (2 * side + 0.3)), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)
        for block, (part,) in enumerate(figure.subfigures(blocks, 1, squeeze=False)):
            grid = part.subplots(2, _PICTURES_PER_ROW, squeeze=False)
            rows = (("original", originals), ("reconstruction", reconstructions))
            for line, (label, pictures) in zip(grid, rows, strict=True):
                line[0].set_ylabel(label)
                for place, axes in enumerate(line, block * _PICTURES_PER_ROW):
                    if place >= count:
                        axes.set_axis_off()
                        continue
                    _draw_picture(axes, pictures[place])
                    if pictures is reconstructions:
                        axes.set_xlabel(f"error {errors[place]:.3f}", fontsize=8)
        return as_svg(figure, name, f"{title}: {count} originals and their reconstructions")


def draw_embedding(
    name: str,
    points: NDArray[Any],
    bonus: NDArray[Any] | None,
    axis_labels: tuple[str, str],
    color: str,
    title: str,
) -> str:
    """Dots in the plane on one scale for both axes, coloured by the bonus.

    Args:
        name: Unique on the page; element ids begin with it.
        points: Their places [n, 2].
        bonus: Of each dot [n], or None if unknown.
        axis_labels: Of x and y.
        color: Of the dots without a bonus.
        title: Over the figure.
    """
    with house_style():
        figure = Figure(figsize=(HALF, 4.0), dpi=_DOTS_PER_INCH, layout="constrained")
        axes = figure.add_subplot()
        dots: dict[str, Any] = {"s": 9, "linewidths": 0, "alpha": 0.85, "rasterized": True}
        if bonus is None:
            axes.scatter(*points.T, color=color, **dots)
        else:
            # Single outliers must not take all colours; high ones lie on top.
            low, high = np.percentile(bonus, (2, 98))
            order = np.argsort(bonus, kind="stable")
            scale: dict[str, Any] = {"cmap": mpl.colormaps["viridis"], "vmin": low}
            scale["vmax"] = high if high > low else low + 1.0
            x, y = points[order].T
            shown = axes.scatter(x, y, c=bonus[order], **scale, **dots)
            bar = figure.colorbar(shown, ax=axes, shrink=0.9, aspect=28, pad=0.02)
            if bar.solids is not None:
                bar.solids.set_alpha(1)  # the dots are translucent, their scale is not
            bar.set_label("bonus")
            bar.outline.set_visible(False)
            bar.ax.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_aspect("equal", adjustable="datalim")
        axes.grid(True, axis="both")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel(axis_labels[0])
        axes.set_ylabel(axis_labels[1])
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
        return as_svg(figure, name, f"{title}: {len(points)} observations in two dimensions")


def _draw_picture(axes: Axes, picture: NDArray[Any]) -> None:
    if picture.ndim == 2:
        picture = np.repeat(picture[..., None], 3, axis=-1)
    # `none` puts the pixels into the SVG as they are; the browser enlarges them without blur.
    axes.imshow(picture, interpolation="none")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=FAINT, linewidth=0.6)
