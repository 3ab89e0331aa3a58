"""What a reproduction leaves behind."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rllib_rise.experiments.report.panels import standalone
from rllib_rise.experiments.run_directory import versions, write_json

SCALES = ("small", "workstation", "paper")
"""Minutes; what one machine can do in hours; all that the paper ran."""


def write_about(out: Path, target: str, scale: str) -> None:
    """Say where these results come from."""
    out.mkdir(parents=True, exist_ok=True)
    about = {
        "command": f"rise reproduce {target} --scale {scale}",
        "scale": scale,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
    }
    write_json(out / "about.json", about)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A CSV with a column per key; numbers with the digits that mean something."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in rows)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What `write_rows` wrote, numbers as numbers."""
    with path.open() as stream:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(stream)]


def write_figure(path: Path, svg: str) -> None:
    """An SVG file of its own."""
    path.write_text(standalone(svg) + "\n")


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
