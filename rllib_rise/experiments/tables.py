"""Tables as CSV files, numbers with the digits that mean something."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A CSV with a column per key of the first row."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in rows)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What `write_rows` wrote, numbers as numbers."""
    with path.open() as stream:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(stream)]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
