"""The last section of a page: settings, versions and how to run it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rllib_rise.experiments.report.html import escape, folded, table
from rllib_rise.experiments.report.runs import Run


def details_section(runs: Sequence[Run], commands: Sequence[str], *, unfold: bool) -> str:
    """Settings, versions and how to run it again; equal columns are shown once.

    Args:
        runs: A column each.
        commands: What to type in the folder of the page.
        unfold: Whether the settings of method and environment can be seen at once.
    """
    ours, task = _settings(runs, "intrinsic"), _settings(runs, "env", "stop")
    versions = _side_by_side({run.label: _flat(run.versions) for run in runs})
    code = "\n".join(map(escape, commands))
    again = f"<p>From the folder of this page:</p><pre>{code}</pre>"
    parts = [
        "<h2>Settings</h2>",
        folded("Method and environment", f'<div class="columns">{ours}{task}</div>', unfold=unfold),
        folded("RLlib settings", _settings(runs, "rllib")),
        folded("Versions", versions),
        folded("Run it again", again),
    ]
    return "\n".join(parts)


def _settings(runs: Sequence[Run], *sections: str) -> str:
    return _side_by_side(
        {run.label: _flat({name: run.config.get(name) for name in sections}) for run in runs}
    )


def _side_by_side(columns: Mapping[str, Mapping[str, Any]]) -> str:
    first = next(iter(columns.values()))
    if all(column == first for column in columns.values()):
        columns = {"value": first}
    keys = dict.fromkeys(key for column in columns.values() for key in column)
    if not keys:
        return "<p>None.</p>"
    rows = [
        {"setting": key, **{name: column.get(key, "–") for name, column in columns.items()}}
        for key in keys
    ]
    return table(rows, colors={})


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = value
    return flat
