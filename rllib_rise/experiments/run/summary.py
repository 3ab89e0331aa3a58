"""The final figures of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rllib_rise.experiments.run.bonus_left import REWARD, as_multiples
from rllib_rise.experiments.run.exploration import ExplorationTracker
from rllib_rise.experiments.run.returns import mean_return
from rllib_rise.experiments.run.run_directory import RunDirectory

_FINAL_SHARE = 0.1
_FINDINGS = ("_k", "_intrinsic_dimension")


def summarise(run: RunDirectory, tracker: ExplorationTracker) -> dict[str, Any]:
    """The final figures of a run.

    `return` is over the episodes that ended in its last tenth, `return_at_half` over those of the
    tenth before half of its steps.
    """
    rows = run.read_metrics()
    last = rows[-1]
    assert last["env_steps"] is not None
    first_step = (1 - _FINAL_SHARE) * last["env_steps"]
    half = 0.5 * last["env_steps"]
    first_half = half - _FINAL_SHARE * last["env_steps"]
    result: dict[str, Any] = {
        "env_steps": int(last["env_steps"]),
        "seconds": last["seconds"] or math.nan,
        "steps_per_second": _steps_per_second(rows),
        "return": mean_return(row for row in rows if (row["env_steps"] or 0) > first_step),
        "return_at_half": mean_return(
            row for row in rows if first_half < (row["env_steps"] or 0) <= half
        ),
    }
    result |= _episode_figures([row for row in rows if (row["env_steps"] or 0) > first_step])
    warmup = last.get("intrinsic_warmup_steps")
    if warmup:
        result["warmup_steps"] = int(warmup)
    explored = tracker.figures()
    if explored:
        result |= {**explored, "first_goal_steps": tracker.first_goal_steps}
    result |= _cost(rows) | _left(rows, first_step) | _found(last)
    warnings = _warnings(rows)
    if warnings:
        result["warnings"] = warnings
    return result


def _cost(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """What the bonus takes: seconds per update, megabytes that it keeps; over all modules."""
    figures = {}
    for name, ending, of in (
        ("bonus_seconds", "intrinsic_seconds", statistics.median),
        ("bonus_megabytes", "intrinsic_megabytes", max),
    ):
        totals = [
            [value for key, value in row.items() if key.endswith(ending) and value is not None]
            for row in rows
        ]
        if any(totals):
            figures[name] = float(of([sum(values) for values in totals if values]))
    return figures


def _found(last: Mapping[str, float | None]) -> dict[str, float]:
    """What a method found out about the task: k, the dimension of the data."""
    return {
        name: value
        for name, value in last.items()
        if name.endswith(_FINDINGS) and value is not None and not name.endswith("clipped_k")
    }


def _left(rows: Sequence[Mapping[str, float | None]], first_step: float) -> dict[str, float]:
    """The bonus in the last tenth, as a multiple of that in the first; over all modules."""
    left = []
    for name in {key for row in rows for key in row if key.endswith(REWARD)}:
        told = [row for row in rows if row.get(name) is not None]
        steps = [row["env_steps"] or 0 for row in told]
        multiples = as_multiples(
            steps, [row[name] or 0 for row in told], rows[-1]["env_steps"] or 0
        )
        left += [v for s, v in zip(steps, multiples or [], strict=False) if s > first_step]
    return {"bonus_left": statistics.mean(left)} if left else {}


def _steps_per_second(rows: Sequence[Mapping[str, float | None]]) -> float:
    """Of training: Phase 1, whose steps may come from another run, is left out."""
    before = rows[0].get("intrinsic_warmup_steps") or 0
    steps, seconds = 0.0, 0.0
    for row in rows:
        now, rate = row["env_steps"] or before, row["steps_per_second"]
        if rate:
            steps += now - before
            seconds += (now - before) / rate
        before = now
    return steps / seconds if seconds else math.nan


def _episode_figures(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """What environments tell of their episodes (one-life returns, say), each episode once."""
    ending = "_count"
    names = {key.removesuffix(ending) for row in rows for key in row if key.endswith(ending)}
    figures = {}
    for name in sorted(names):
        counts = [row.get(name + ending) or 0 for row in rows]
        if sum(counts) and any(name in row for row in rows):
            pairs = zip(rows, counts, strict=True)
            figures[name] = sum((row.get(name) or 0) * n for row, n in pairs if n) / sum(counts)
    return figures


def _warnings(rows: Sequence[Mapping[str, float | None]]) -> list[str]:
    """What a user should know about a run that went through."""
    silent = [
        any(name.endswith("_duplicates") and value == 1 for name, value in row.items())
        for row in rows
    ]
    if sum(silent) <= len(silent) / 2:
        return []
    return [
        f"the bonus was 0 in {sum(silent)} of {len(silent)} updates, because every k-th neighbour "
        "was at distance 0: observations are constant, or k is too small for the visits per state"
    ]
