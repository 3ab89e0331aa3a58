"""A figure with its caption on the page, and its data in a file beside the page."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rllib_rise.experiments.report.html import escape


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
    """The panels as HTML, with links to their data."""
    folder = escape(data_folder(page).name)
    items = []
    for panel in panels:
        link = f'<a href="{folder}/{panel.name}.csv">Data (CSV)</a>'
        caption = f"<figcaption>{escape(panel.caption)} {link}</figcaption>"
        items.append(
            f'<figure id="{panel.name}" class="{panel.shape}">{panel.svg}{caption}</figure>'
        )
    return f'<section class="figures">{"".join(items)}</section>'


def write_data(panels: Sequence[Panel], page: Path) -> None:
    """Write the rows behind each panel as CSV."""
    folder = data_folder(page)
    folder.mkdir(parents=True, exist_ok=True)
    for panel in panels:
        columns = list(dict.fromkeys(name for row in panel.data for name in row))
        with (folder / f"{panel.name}.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerows(panel.data)
