"""Panels with curves over environment steps: a line per run, or per method with its seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rllib_rise.experiments.report.charts import Curve, draw_curves
from rllib_rise.experiments.report.panels import Panel
from rllib_rise.experiments.report.runs import COVERAGE, RETURN, Run, settled
from rllib_rise.experiments.run.bonus_left import REWARD, as_multiples
from rllib_rise.experiments.statistics import bootstrap_interval, interquartile_mean

_SPREAD = "intrinsic_reward_std"
_WEIGHT = "intrinsic_lambda"
# Figure: (how its columns in metrics.csv end, what it shows, how to read it).
_CURVES = {
    "episode_return": (
        RETURN,
        "episode return",
        "The environment's own; mean over the last 100 episodes.",
    ),
    "coverage": (COVERAGE, "coverage", "Share of the reachable cells visited at least once."),
    "intrinsic_reward": (REWARD, "intrinsic reward", "Mean over the batch, before the weight λ."),
    "intrinsic_lambda": (_WEIGHT, "λ", "Weight of the intrinsic reward."),
    "state_entropy": ("_entropy", "state entropy", "k-NN estimate over the encoded batch."),
    "duplicates": (
        "_duplicates",
        "duplicates",
        "Share of the batch whose k-th neighbour is at distance 0.",
    ),
}
_RANGES = {"coverage": (0.0, 1.0)}
_SHARES = {"coverage": (0.0, 1.02), "duplicates": (0.0, 1.02)}
_RELATIVE = (
    "intrinsic reward, 1 = at first",
    "Mean over the batch, before it is standardised or weighed, as a multiple of its mean in the "
    "first tenth of the budget: a bonus that vanishes goes to 0.",
)
_WIDE = 10
_CROWD = 6  # of more methods, single seeds would be a tangle
_OWN_SCALE = " Each method has its own scale."
_GRID_POINTS = 400
_INTERVALS = 60


def run_curves(runs: Sequence[Run], colors: Mapping[str, str]) -> list[Panel]:
    """A panel per figure that the runs have, with a line per run; `colors` are by label."""
    alone = len(runs) == 1
    panels = []
    for name, (ending, title, caption) in _CURVES.items():
        columns = _columns(runs, ending)
        if name == "intrinsic_lambda" and _constant(runs, columns) is not None:
            continue  # a number in a caption, not a figure
        curves = [
            Curve(
                label=f"{'' if alone else run.label} {_module(column)}".strip(),
                color=colors[run.label],
                steps=steps,
                values=values,
                band=_deviation(run, column) if alone else None,
            )
            for run in runs
            for column in columns
            for steps, values in [run.series(column)]
            if steps
        ]
        if not curves:
            continue
        if name == "intrinsic_reward":
            columns += _columns(runs, _SPREAD, _WEIGHT)
            weight = _constant(runs, _columns(runs, _WEIGHT))
            caption += " The band is one standard deviation." if alone else ""
            caption += f" λ is {weight:g} throughout." if weight is not None else ""
        if name in ("intrinsic_reward", "state_entropy") and not alone:
            caption += _OWN_SCALE
        data = [
            {"run": run.label, "env_steps": row["env_steps"], **{c: row.get(c) for c in columns}}
            for run in runs
            for row in run.rows
        ]
        svg = draw_curves(name, curves, title, limits=_SHARES.get(name))
        panels.append(Panel(name, svg, caption, data))
    return panels


def comparison_curves(
    groups: Mapping[str, Sequence[Run]], colors: Mapping[str, str]
) -> list[Panel]:
    """Panels with a bold line and a band per method, and a thin line per seed; by method."""
    everything = [run for runs in groups.values() for run in runs]
    several = any(len(settled(runs)) > 1 for runs in groups.values())
    band = ", with its 95 % interval" if several else ""
    lines = f"Bold: IQM over seeds{band}. Thin: single seeds."
    if not all(run.result for run in everything):
        lines = f"Bold: IQM over finished seeds{band}. Thin: single seeds, dashed if unfinished."
    crowded = len(groups) > _CROWD
    if crowded:
        lines = f"IQM over seeds{band}."
    panels = []
    budget = max(run.config["stop"]["env_steps"] for run in everything)
    for name in ("coverage", "episode_return", "intrinsic_reward"):
        ending, title, caption = _CURVES[name]
        if name == "intrinsic_reward":
            title, caption = _RELATIVE
        curves: list[Curve] = []
        data: list[Mapping[str, Any]] = []
        left_out = []
        for method, column in itertools.product(groups, _columns(everything, ending)):
            runs = [run for run in groups[method] if _series(run, column, budget)[0]]
            if len(runs) < sum(bool(run.series(column)[0]) for run in groups[method]):
                left_out.append(method if not runs else f"runs of {method}")
            for run in runs:
                steps, values = _series(run, column, budget)
                kind: Literal["seed", "unfinished"] = "seed" if run.result else "unfinished"
                curves.append(Curve("", colors[method], steps, values, kind=kind))
                data += _tidy(method, f"seed_{run.seed}", steps, values, column)
            steps, many = _together([_series(run, column, budget) for run in settled(runs)])
            if steps:
                label = f"{method} {_module(column)}".strip()
                values = interquartile_mean(many, axis=0).tolist()
                around = _interval(many, *_RANGES.get(name, (-np.inf, np.inf)))
                curves.append(Curve(label, colors[method], steps, values, around))
                data += _tidy(method, "iqm", steps, values, column)
        if curves:
            bold = [curve for curve in curves if curve.kind == "main"]
            shown = bold if crowded and bold else curves
            values = [value for curve in bold or curves for value in curve.values]
            wide = name == "intrinsic_reward" and 0 < _WIDE * min(values) < max(values)
            limits = (min(values) / 2, 2 * max(values)) if wide else _SHARES.get(name)
            svg = draw_curves(name, shown, title, limits=limits, logarithmic=wide)
            if left_out:
                caption += f" Without {', '.join(left_out)}: around or below 0 at first."
            panels.append(Panel(name, svg, f"{caption} {lines}", data))
    return panels


def _series(run: Run, column: str, budget: int) -> tuple[list[float], list[float]]:
    """A run's values of a column; of the bonus, as multiples of what it was at first."""
    steps, values = run.series(column)
    if not column.endswith(REWARD):
        return steps, values
    multiples = as_multiples(steps, values, budget)
    return (steps, multiples) if multiples else ([], [])


def _together(
    seeds: Sequence[tuple[list[float], list[float]]],
) -> tuple[list[float], np.ndarray]:
    """Seeds where all of them have values, so that none drops out on the way: [n], [seeds, n]."""
    if not seeds:
        return [], np.empty((0, 0))
    first, last = max(steps[0] for steps, _ in seeds), min(steps[-1] for steps, _ in seeds)
    grid = np.unique(np.concatenate([steps for steps, _ in seeds]))
    grid = grid[(grid >= first) & (grid <= last)]
    if grid.size > _GRID_POINTS:
        grid = grid[np.linspace(0, grid.size - 1, _GRID_POINTS).round().astype(int)]
    return grid.tolist(), np.array([np.interp(grid, *seed) for seed in seeds])


def _interval(
    seeds: np.ndarray, lowest: float, highest: float
) -> tuple[list[float], list[float]] | None:
    """The 95 % interval of the IQM at every point; None for a single seed."""
    if len(seeds) < 2:
        return None
    some = np.unique(np.linspace(0, seeds.shape[1] - 1, _INTERVALS).round().astype(int))
    found = [bootstrap_interval([seeds[:, one]]).within(lowest, highest) for one in some]
    everywhere = range(seeds.shape[1])
    low, high = ([getattr(one, side) for one in found] for side in ("low", "high"))
    return np.interp(everywhere, some, low).tolist(), np.interp(everywhere, some, high).tolist()


def _columns(runs: Sequence[Run], *endings: str) -> list[str]:
    """Columns with these endings; of several modules, each has its id and a slash in front."""
    names = dict.fromkeys(name for run in runs for name in run.rows[-1])
    return [name for name in names if name.endswith(endings)]


def _constant(runs: Sequence[Run], columns: Sequence[str]) -> float | None:
    """The value that these columns have in all rows; None if there are several or none."""
    values = {value for run in runs for column in columns for value in run.series(column)[1]}
    return values.pop() if len(values) == 1 else None


def _module(column: str) -> str:
    return column.rpartition("/")[0]


def _deviation(run: Run, column: str) -> tuple[list[float], list[float]] | None:
    """The bonus' mean less and plus its deviation."""
    if not column.endswith(REWARD):
        return None
    values = np.array(run.series(column)[1])
    deviation = np.array(run.series(column.removesuffix(REWARD) + _SPREAD)[1])
    if len(values) != len(deviation):
        return None
    return (values - deviation).tolist(), (values + deviation).tolist()


def _tidy(
    method: str, series: str, steps: Sequence[float], values: Sequence[float], column: str
) -> list[Mapping[str, Any]]:
    return [
        {"method": method, "series": series, "env_steps": step, column: value}
        for step, value in zip(steps, values, strict=True)
    ]
