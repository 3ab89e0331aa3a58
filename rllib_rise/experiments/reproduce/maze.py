"""The paper's maze figure: tabular Q-learning, steps until every cell was seen.

What the paper does not print decides what comes out (see `tabular.maze_learning` for the rewards):
so several versions of its reward are run side by side, with two controls, over perfect mazes and
ones with loops and portals. Each run has a maze of its own, the same for all arms.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from scipy import stats

from rllib_rise.envs.maze_structure import Layout
from rllib_rise.experiments.report.canvas import FULL, INK, as_svg, house_style
from rllib_rise.experiments.reproduce.record import OnProgress, write_figure
from rllib_rise.experiments.statistics import bootstrap_interval, censored_median
from rllib_rise.experiments.tables import read_rows, write_rows
from rllib_rise.tabular.maze_learning import Arm, make_mazes, steps_to_cover

BASELINE = "Q-learning"
ARMS = (
    Arm(BASELINE),
    Arm("Q-learning, no goal reward", goal_reward=0.0),
    *(Arm(f"H: RISE {alpha}", "counts", alpha) for alpha in (0.1, 0.3, 0.5, 0.7, 0.9)),
    Arm("H: Shannon", "counts"),
    *(Arm(f"F: RISE {alpha}", "knn", alpha) for alpha in (0.1, 0.5, 0.9)),
    Arm("F: RE3", "knn"),
    *(Arm(f"G: RISE {alpha}", "counts", alpha, coefficient=alpha) for alpha in (0.1, 0.5, 0.9)),
    *(Arm(f"H/sd: RISE {a}", "counts", a, normalize=True) for a in (0.1, 0.5, 0.9)),
    Arm("H/sd: Shannon", "counts", normalize=True),
)
# Does a small order beat Shannon's, or a large one, in the same form?
PAIRS = (
    ("H: RISE 0.1", "H: Shannon"),
    ("H/sd: RISE 0.1", "H/sd: Shannon"),
    ("F: RISE 0.1", "F: RE3"),
    ("F: RISE 0.1", "F: RISE 0.9"),
    ("G: RISE 0.1", "G: RISE 0.9"),
)
LAYOUTS: tuple[Layout, ...] = ("perfect", "portals")
_SIZES = {"small": (5, 10), "workstation": (5, 10, 20), "paper": (5, 10, 20)}
_RUNS = {"small": 20, "workstation": 100, "paper": 100}
_RUNS_PER_TASK = 25
# Nothing was tried on these mazes.
_FIRST_SEED = 1000
_COLORS = {BASELINE: "#5f6368", "H": "#0072B2", "F": "#D55E00", "G": "#009E73", "H/sd": "#CC79A7"}
# Episodes of full length after which a run is given up.
_EPISODES = 100
_RESAMPLES = 2000
_SHOWN = ("arm", "mean", "low", "high", "median", "given up", "better than Q-learning", "worse")

Row = dict[str, Any]


def maze(out: Path, scale: str, on_progress: OnProgress) -> list[tuple[str, list[Row]]]:
    """Run what is missing of the study, write its rows, table and figure."""
    runs = out / "runs.csv"
    done = _known(runs)
    tasks = [
        (layout, size, first, min(_RUNS_PER_TASK, _FIRST_SEED + _RUNS[scale] - first))
        for size, layout in product(reversed(_SIZES[scale]), LAYOUTS)
        for first in range(_FIRST_SEED, _FIRST_SEED + _RUNS[scale], _RUNS_PER_TASK)
    ]
    missing = [task for task in tasks if task[:3] not in done]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_run, *task): task for task in missing}
        try:
            for future in as_completed(futures):
                done[futures[future][:3]] = future.result()
                _write(runs, [done[task[:3]] for task in tasks if task[:3] in done])
                on_progress(f"mazes: {len(done)} of {len(tasks)} parts", len(done) / len(tasks))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    rows = read_rows(runs)
    table = summary(rows)
    write_rows(out / "summary.csv", table)
    write_rows(out / "pairs.csv", pairs(rows))
    write_figure(out / "maze.svg", draw(read_rows(out / "summary.csv")))
    size = max(_SIZES[scale])
    return [
        (
            f"steps until every cell was seen, {layout} mazes of {size} x {size}",
            [
                {name: row[name] for name in _SHOWN}
                for row in table
                if (row["layout"], row["size"]) == (layout, size)
            ],
        )
        for layout in LAYOUTS
    ]


def _run(layout: Layout, size: int, first: int, number: int) -> list[Row]:
    found = steps_to_cover(
        make_mazes(size, layout, range(first, first + number)), ARMS, cap=_cap(size)
    )
    return [
        {
            "layout": layout,
            "size": size,
            "part": first,
            "arm": arm.name,
            "maze": first + column,
            "steps": "" if np.isnan(steps) else int(steps),
        }
        for arm, line in zip(ARMS, found, strict=True)
        for column, steps in enumerate(line)
    ]


def _cap(size: int) -> int:
    return _EPISODES * 10 * size**2


def _known(path: Path) -> dict[tuple[Any, ...], list[Row]]:
    """Parts that an earlier, interrupted run has written; those of other arms are run again."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in read_rows(path) if path.exists() else []:
        found.setdefault((row["layout"], row["size"], row["part"]), []).append(row)
    names = {arm.name for arm in ARMS}
    return {key: part for key, part in found.items() if {row["arm"] for row in part} == names}


def _write(path: Path, parts: list[list[Row]]) -> None:
    partial = path.with_name(path.name + ".partial")
    write_rows(partial, [row for part in parts for row in part])
    partial.replace(path)


def summary(rows: list[Row]) -> list[Row]:
    """Per layout, size and arm: mean and median with intervals, and pairs against Q-learning.

    Runs that were given up count with the cap in means and pairs.
    """
    found = []
    for (layout, size), arms in _by_arm(rows).items():
        cap = _cap(size)
        for arm, steps in arms.items():
            values = _in_order(steps, cap)
            mean = bootstrap_interval([values], np.mean)
            median = censored_median(
                [None if np.isnan(s) else s for s in steps.values()], budget=cap
            )
            against = _paired(values, _in_order(arms[BASELINE], cap))
            found.append(
                {
                    "layout": layout,
                    "size": size,
                    "arm": arm,
                    "mean": round(mean.estimate),
                    "low": round(mean.low),
                    "high": round(mean.high),
                    "median": median.estimate,
                    "given up": int(np.isnan(list(steps.values())).sum()),
                    "runs": len(values),
                    "median, low": median.low,
                    "median, high": median.high,
                    "better than Q-learning": against["better"],
                    "worse": against["worse"],
                    "p": against["p"],
                }
            )
    return found


def pairs(rows: list[Row]) -> list[Row]:
    """Two arms in the same mazes: the ratio of their means, and how often the first was faster."""
    found = []
    for (layout, size), arms in _by_arm(rows).items():
        for first, second in PAIRS:
            steps = [_in_order(arms[arm], _cap(size)) for arm in (first, second)]
            found.append(
                {
                    "layout": layout,
                    "size": size,
                    "first": first,
                    "second": second,
                    **_ratio_of_means(*steps),
                    **_paired(*steps),
                }
            )
    return found


def _ratio_of_means(first: np.ndarray, second: np.ndarray) -> Row:
    """With a 95 % percentile interval over mazes."""
    drawn = np.random.default_rng(0).integers(len(first), size=(_RESAMPLES, len(first)))
    ratios = first[drawn].mean(axis=1) / second[drawn].mean(axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return {"ratio": float(first.mean() / second.mean()), "low": float(low), "high": float(high)}


def _by_arm(rows: list[Row]) -> dict[tuple[str, int], dict[str, dict[int, float]]]:
    """Steps by layout and size, arm, and maze; NaN where a run was given up."""
    cells: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
    for row in rows:
        arms = cells.setdefault((row["layout"], row["size"]), {})
        arms.setdefault(row["arm"], {})[row["maze"]] = float(row["steps"] or "nan")
    return cells


def _paired(first: np.ndarray, second: np.ndarray) -> Row:
    """Wilcoxon's signed rank test on the logarithms, two-sided; ties are left out of it."""
    ratio = np.log(first / second)
    if not ratio.any():
        return {"better": "", "worse": "", "p": ""}
    return {
        "better": float((ratio < 0).mean()),
        "worse": float((ratio > 0).mean()),
        "p": float(stats.wilcoxon(ratio).pvalue),
    }


def _in_order(steps: dict[int, float], cap: int) -> np.ndarray:
    values = np.array([steps[number] for number in sorted(steps)])
    return np.where(np.isnan(values), cap, values)


def draw(table: list[Row]) -> str:
    """Mean with its interval, and median, of every arm in every kind of maze."""
    sizes = sorted({row["size"] for row in table})
    names = [arm.name for arm in ARMS]
    with house_style():
        figure = Figure(figsize=(FULL, 3.1 * len(LAYOUTS)), layout="constrained")
        grid = figure.subplots(len(LAYOUTS), len(sizes), squeeze=False, sharey=True)
        for (line, layout), (column, size) in product(enumerate(LAYOUTS), enumerate(sizes)):
            axes = grid[line][column]
            own = {r["arm"]: r for r in table if (r["layout"], r["size"]) == (layout, size)}
            for place, name in enumerate(names):
                row = own[name]
                color = _COLORS[name.split(":")[0].split(",")[0]]
                axes.plot([row["low"], row["high"]], [place, place], color=color)
                axes.plot(row["mean"], place, "o", color=color, markersize=4)
                axes.plot(row["median"], place, "|", color=INK, markersize=7)
            base = own[BASELINE]["mean"]
            axes.axvline(base, color=INK, linewidth=0.6, linestyle=":")
            axes.set(title=f"{layout}, {size} x {size}", xlim=(0, None))
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.set_yticks(range(len(names)), names, fontsize=7)
            axes.set_ylim(len(names) - 0.5, -0.5)
        grid[-1][0].set_xlabel("steps until every cell was seen")
        return as_svg(figure, "maze", "Steps until every cell was seen, by arm, layout and size")
