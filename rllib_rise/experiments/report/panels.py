"""A figure with its caption on the page; beside the page the same figure and its data."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rllib_rise.experiments.report.html import escape

# Needed in a file of its own; inside an HTML page they are understood.
_NAMESPACES = (
    'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'style="background: white"'
)


@dataclass(frozen=True)
class Panel:
    """A figure, what it means, and the rows behind it."""

    name: str
    svg: str
    caption: str
    data: Sequence[Mapping[str, Any]]
    shape: Literal["", "wide", "tall"] = ""


def data_folder(page: Path) -> Path:
    """Where the data of a page's figures are."""
    return page.with_name(f"{page.stem}_data")


def figure_section(panels: Sequence[Panel], page: Path) -> str:
    """The panels as HTML, with links to their files."""
    folder = escape(data_folder(page).name)
    items = []
    for panel in panels:
        links = " ".join(
            f'<a href="{folder}/{panel.name}.{kind}">{kind.upper()}</a>' for kind in ("csv", "svg")
        )
        caption = f"<figcaption>{escape(panel.caption)} {links}</figcaption>"
        items.append(
            f'<figure id="{panel.name}" class="{panel.shape}">{panel.svg}{caption}</figure>'
        )
    return f'<section class="figures">{"".join(items)}</section>'


def standalone(svg: str) -> str:
    """An SVG element as the content of a file of its own."""
    return svg.replace("<svg", f"<svg {_NAMESPACES}", 1)


def write_data(panels: Sequence[Panel], page: Path) -> None:
    """Write each panel as SVG, and the rows behind it as CSV."""
    folder = data_folder(page)
    folder.mkdir(parents=True, exist_ok=True)
    for panel in panels:
        (folder / f"{panel.name}.svg").write_text(standalone(panel.svg) + "\n")
        columns = list(dict.fromkeys(name for row in panel.data for name in row))
        with (folder / f"{panel.name}.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerows(panel.data)
