"""Panels about exploration: the visits of each cell, and the steps to the first goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_rise.errors import RiseError
from rllib_rise.experiments.report.charts import draw_first_goals
from rllib_rise.experiments.report.maps import VisitMap, draw_visits
from rllib_rise.experiments.report.panels import Panel
from rllib_rise.experiments.report.runs import COVERAGE, Run


def visit_panel(runs: Sequence[Run], colors: Mapping[str, str]) -> list[Panel]:
    """Heat maps, one per label: of several runs, the one with the median coverage.

    A mean over seeds would show cells as visited that most runs never saw. Empty without visits.
    """
    seen: dict[str, list[tuple[Run, NDArray[Any], NDArray[np.bool_]]]] = {}
    for run in runs:
        found = run.visits()
        if found is not None:
            seen.setdefault(run.label, []).append((run, *found))
    if not seen:
        return []
    maps, data = [], []
    for label, group in seen.items():
        by_coverage = sorted(group, key=lambda entry: _coverage(entry[1], entry[2]))
        run, visits, reachable = by_coverage[(len(group) - 1) // 2]
        note = f"coverage {_coverage(visits, reachable):.2f}"
        if len(group) > 1:
            note += f" (seed {run.seed})"
        plan: Any = {"walls": _walls(run.env), "axes": _axes(run.env)}
        maps.append(VisitMap(label, note, colors[label], visits, reachable, **plan))
        data += [
            {"label": label, "row": r, "column": c, "visits": visits[r, c], "reachable": int(free)}
            for (r, c), free in np.ndenumerate(reachable)
        ]
    caption = "Visits per cell until the end of the run"
    if any(run.result is None for group in seen.values() for run, _, _ in group):
        caption += ", or until the newest checkpoint where the run is unfinished"
    if any(len(group) > 1 for group in seen.values()):
        caption += "; of each method the run with the median coverage"
    svg = draw_visits("visits", maps)
    return [Panel("visits", svg, caption + ".", data, "wide" if len(maps) > 1 else "tall")]


def first_goal_panel(
    groups: Mapping[str, Sequence[Run]], colors: Mapping[str, str], budget: int
) -> list[Panel]:
    """When each finished run first reached the goal. Empty if none of them did."""
    results = {
        method: [(run.seed, run.result["first_goal_steps"]) for run in runs if run.result]
        for method, runs in groups.items()
        if any(run.result and COVERAGE in run.result for run in runs)
    }
    if not any(step is not None for found in results.values() for _, step in found):
        return []
    data = [
        {"method": method, "seed": seed, "first_goal_steps": step}
        for method, found in results.items()
        for seed, step in found
    ]
    steps = {method: [step for _, step in found] for method, found in results.items()}
    svg = draw_first_goals("first_goal", steps, colors, budget)
    caption = (
        "Environment steps to the first goal, a dot per finished run. "
        "Open triangles at the budget: runs that never reached it."
    )
    return [Panel("first_goal", svg, caption, data)]


def _coverage(counts: NDArray[Any], reachable: NDArray[np.bool_]) -> float:
    return float((counts > 0)[reachable].mean())


def _axes(env: dict[str, Any]) -> tuple[str, str] | None:
    """What columns and rows mean in the environments that are no mazes."""
    from rllib_rise.envs import MOUNTAIN_CAR_IDS, mountain_car

    return mountain_car.AXES if env.get("id") in MOUNTAIN_CAR_IDS else None


def _walls(env: dict[str, Any]) -> NDArray[Any] | None:
    """The walls of our maze as line segments; None for other environments."""
    from rllib_rise.envs import MAZE_ID, Maze

    if env.get("id") != MAZE_ID:
        return None
    try:
        structure = Maze(**{key: value for key, value in env.items() if key != "id"}).structure
    except (RiseError, TypeError):  # settings of another version: the visits still stand
        return None
    rows, columns = np.divmod(np.arange(structure.size**2), structure.size)
    below, right = ~structure.passages[:, 1], ~structure.passages[:, 3]
    x, y = columns[below], rows[below] + 0.5
    horizontal = np.stack([np.stack([x - 0.5, y], -1), np.stack([x + 0.5, y], -1)], 1)
    x, y = columns[right] + 0.5, rows[right]
    vertical = np.stack([np.stack([x, y - 0.5], -1), np.stack([x, y + 0.5], -1)], 1)
    return np.concatenate([horizontal, vertical])
