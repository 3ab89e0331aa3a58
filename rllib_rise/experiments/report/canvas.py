"""What the drawings of a report share: size, style, colours, and SVG that can stand inside HTML.

Everything is drawn on `matplotlib.figure.Figure`, without pyplot, so that it works in threads and
without a display. Text stays text. The same input gives the same bytes.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from rllib_rise.experiments.report.html import escape

HALF, FULL = 5.0, 10.2
"""Widths of a figure in inches; a CSS inch is 96 pixels, so two halves fit the page."""
INK, FAINT = "#3c4043", "#d7dadd"
"""Colours of text and of lines that should not be noticed."""

_METHOD_COLORS = {
    "none": "#5f6368",
    "random": "#a3a8ad",
    "rise": "#0072B2",
    "re3": "#D55E00",
    "rnd": "#009E73",
    "count": "#E69F00",
    "icm": "#CC79A7",
    "ride": "#56B4E9",
    "ngu": "#7b4bb7",
    "max-renyi": "#8c5a2b",
    "sum": "#1a1a1a",
}
# Okabe-Ito without yellow, which is too faint on white; the colours that are easiest to read first.
_COLORS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#5f6368"),
    *("#8B1A1A", "#6B8E23", "#191970", "#B8860B", "#2F4F4F", "#9932CC"),
)

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "figure.facecolor": "none",
    "savefig.facecolor": "auto",
    "axes.facecolor": "none",
    "text.parse_math": False,  # names come from users and may hold a dollar sign
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#eceef0",
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "hatch.linewidth": 0.7,
    "svg.fonttype": "none",
}
# Matplotlib reads its settings from one dict per process, also while it saves.
_LOCK = threading.Lock()


def method_colors(names: Iterable[str]) -> dict[str, str]:
    """A colour per name: the package's methods always have theirs, others what is left."""
    names = list(dict.fromkeys(names))
    taken = {_METHOD_COLORS[name] for name in names if name in _METHOD_COLORS}
    free = [color for color in _COLORS if color not in taken] or list(_COLORS)
    others = [name for name in names if name not in _METHOD_COLORS]
    chosen = {name: free[i % len(free)] for i, name in enumerate(others)}
    return {name: _METHOD_COLORS.get(name) or chosen[name] for name in names}


@contextmanager
def house_style() -> Iterator[None]:
    """Where figures are made and saved: in our style, one thread at a time."""
    with _LOCK, mpl.rc_context(_STYLE):
        yield


def as_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an `<svg>` element without namespaces, metadata or ids of other figures.

    Args:
        figure: What to save.
        name: Unique on the page; element ids begin with it.
        description: The text for screen readers.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    # Images are named after their content, so two equal ones would share an id that nobody uses.
    text = re.sub(r'\sid="image[0-9a-f]+"', "", text)
    text = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    label = escape(description)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()
