"""The paper's figure of frames per second: steps per second of training, by method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from rllib_rise.bench.measure import median
from rllib_rise.bench.training import all_methods
from rllib_rise.experiments.report.canvas import HALF, as_svg, house_style, method_colors
from rllib_rise.experiments.reproduce.paper_tables import METHODS
from rllib_rise.experiments.reproduce.record import OnProgress, write_figure
from rllib_rise.experiments.tables import write_rows

_FORMS = {"small": "quick", "workstation": "full", "paper": "full"}


def throughput(
    out: Path, scale: str, on_progress: OnProgress, *, threads: int = 1
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Train with each of the paper's methods in turn, and draw how fast they were; Ray must run."""
    _, measured = all_methods(threads, _FORMS[scale], on_progress)
    rows = speeds(measured)
    write_rows(out / "throughput.csv", rows)
    write_figure(out / "throughput.svg", draw(rows))
    return [("SpaceInvaders, medians over iterations in turn", rows)]


def speeds(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each of the paper's methods, from what `all_methods` has measured."""
    found = {row["method"]: row for row in measured["rows"]}
    plain = found["none"]["seconds"]
    return [
        {
            "method": name,
            "steps per second": round(found[method]["steps_per_second"], 1),
            "share of PPO's": round(
                median([p / s for p, s in zip(plain, found[method]["seconds"], strict=True)]), 3
            ),
        }
        for method, name in METHODS.items()
    ]


def draw(rows: list[dict[str, Any]]) -> str:
    """A bar per method."""
    colors = list(method_colors(METHODS).values())
    with house_style():
        figure = Figure(figsize=(HALF, 2.2), layout="constrained")
        axes = figure.add_subplot()
        names = [row["method"] for row in rows][::-1]
        speeds = [row["steps per second"] for row in rows][::-1]
        bars = axes.barh(names, speeds, color=colors[::-1])
        axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
        axes.set_xlabel("environment steps per second")
        axes.grid(axis="x")
        axes.grid(axis="y", visible=False)
        return as_svg(figure, "throughput", "Environment steps per second, by method")
