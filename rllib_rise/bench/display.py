"""The figures of a benchmark as a table for the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

_SIGNS = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}


_TITLES = {
    "quick": "ratios and their 95 % intervals, of one start; another one may be outside",
    "full": "ratios and their 95 % intervals",
}


def summary_table(summary: list[dict[str, Any]], form: str) -> Table:
    """Each figure with its interval, its goal, and whether the whole interval reaches it."""
    table = Table(title=_TITLES[form], title_justify="left")
    table.add_column("figure")
    for title in ("ratio", "interval", "goal"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("holds")
    for figure in summary:
        table.add_row(
            figure["figure"],
            number(figure["ratio"]),
            f"{number(figure['low'])} to {number(figure['high'])}",
            figure["goal"] or "",
            _SIGNS[figure["holds"]],
        )
    return table


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"
