"""The paper's Atari and Bullet tables and learning curves, by `rise compare` on configs/.

Each task is a comparison of its own, in <out>/<task>, which can be resumed. What is kept of all of
them: runs.csv, a row per run; table.csv, as the paper prints it, beside its numbers; curves.csv and
the figure made from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.compare import compare, entries
from rllib_rise.experiments.progress import RunProgress
from rllib_rise.experiments.report.canvas import FULL, as_svg, house_style, method_colors
from rllib_rise.experiments.reproduce.paper_tables import ATARI, BULLET, METHODS, Numbers
from rllib_rise.experiments.reproduce.record import OnProgress, write_figure
from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.experiments.schema import load_experiment
from rllib_rise.experiments.statistics import FloatArray, bootstrap_interval
from rllib_rise.experiments.tables import read_rows, write_rows

Row = dict[str, Any]

# Those that settings were tried on begin at 0.
_FIRST_SEED = 100
_CURVE_POINTS = 60
_NO_EPISODE = ""  # ended in the last tenth of the run


@dataclass(frozen=True)
class Plan:
    """Tasks that are run alike.

    Attributes:
        tasks: Files in the folder of the configs.
        methods: Which of the paper's.
        env_steps: The budget; None is the paper's.
        seeds: Runs per method.
        changes: Settings other than the files'.
    """

    tasks: tuple[str, ...]
    methods: tuple[str, ...] = tuple(METHODS)
    env_steps: int | None = None
    seeds: int = 8
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """A table of the paper.

    Attributes:
        folder: Of the configs.
        result: What the paper reports, by its name in result.json.
        metric: The same over training, a column of metrics.csv.
        printed: The paper's numbers.
        plans: What is run at each scale.
    """

    folder: str
    result: str
    metric: str
    printed: dict[str, Numbers]
    plans: dict[str, tuple[Plan, ...]]


SUITES = {
    "atari": Suite(
        "atari",
        "one_life_return",
        "one_life_return",
        ATARI,
        {
            "small": (
                Plan(
                    ("space_invaders",),
                    ("none", "rise"),
                    env_steps=6_000,
                    seeds=1,
                    changes=("intrinsic.warmup_steps=1000",),
                ),
            ),
            "workstation": (
                Plan(("space_invaders",), ("none", "rise"), env_steps=300_000, seeds=2),
            ),
            "paper": (Plan(tuple(ATARI)),),
        },
    ),
    "bullet": Suite(
        "bullet",
        "return",
        "episode_return_mean",
        BULLET,
        {
            "small": (Plan(("inverted_pendulum",), ("none", "rise"), env_steps=30_000, seeds=2),),
            "workstation": (
                Plan(("inverted_pendulum",), env_steps=500_000),
                Plan(("hopper", "half_cheetah"), ("none", "re3", "rise"), 500_000, seeds=3),
            ),
            "paper": (Plan(tuple(BULLET)),),
        },
    ),
}


def configs_of(name: str, configs: Path = Path("configs")) -> Path:
    """The folder of a table's configs, or an error that says where to be."""
    folder = configs / SUITES[name].folder
    if not folder.is_dir():
        raise ConfigError(f"{folder} does not exist: run this in the project's folder")
    return folder


def deep(
    name: str,
    out: Path,
    scale: str,
    on_progress: OnProgress,
    *,
    configs: Path = Path("configs"),
) -> list[tuple[str, list[Row]]]:
    """Run what is missing of a table, and write what is kept of it; Ray must run."""
    suite, folder = SUITES[name], configs_of(name, configs)
    runs, curves = list[Row](), list[Row]()
    for plan in suite.plans[scale]:
        for task in plan.tasks:
            path = folder / f"{task}.yaml"
            found, lines = _run(suite, plan, task, path, out / task, on_progress)
            runs += found
            curves += lines
            write_rows(out / "runs.csv", runs)
            write_rows(out / "curves.csv", curves)
    table = paper_table(suite, read_rows(out / "runs.csv"))
    write_rows(out / "table.csv", table)
    write_figure(out / "curves.svg", draw_curves(read_rows(out / "curves.csv")))
    return [(title(suite, read_rows(out / "runs.csv")), table)]


def _run(
    suite: Suite,
    plan: Plan,
    task: str,
    path: Path,
    out: Path,
    on_progress: OnProgress,
) -> tuple[list[Row], list[Row]]:
    changes = [f"seed={_FIRST_SEED}", *plan.changes]
    if plan.env_steps is not None:
        changes.append(f"stop.env_steps={plan.env_steps}")
    experiment = load_experiment(path, changes)

    def told(progress: list[RunProgress]) -> None:
        done = sum(min(one.env_steps, one.budget) for one in progress)
        budget = sum(one.budget for one in progress)
        on_progress(f"{task}: {done:,} of {budget:,} steps", done / budget)

    compare(
        experiment,
        out,
        methods=plan.methods,
        seeds=plan.seeds,
        resume=out.exists(),
        on_progress=told,
    )
    runs, curves = [], []
    for entry in entries(out, plan.methods, range(_FIRST_SEED, _FIRST_SEED + plan.seeds)):
        run = RunDirectory(entry.directory)
        result = run.read_result()
        key = {"task": task, "method": entry.method, "seed": entry.seed}
        runs.append(
            {
                **key,
                "env_steps": result["env_steps"],
                "seconds": round(result["seconds"]),
                "return": _NO_EPISODE if (r := result.get(suite.result)) is None else r,
            }
        )
        rows = [row for row in run.read_metrics() if row.get(suite.metric) is not None]
        every = max(1, len(rows) // _CURVE_POINTS)
        curves += [
            {**key, "env_steps": int(row["env_steps"] or 0), "return": row[suite.metric]}
            for row in rows[every - 1 :: every]
        ]
    return runs, curves


def title(suite: Suite, runs: Sequence[Row]) -> str:
    """What the table shows, and how far below the paper's budget it is."""
    steps = max(run["env_steps"] for run in runs)
    counts = Counter((run["task"], run["method"]) for run in runs).values()
    seeds = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{max(counts)}"
    of = "" if steps >= 10_000_000 else f", {10_000_000 / steps:,.0f} times fewer than the paper's"
    figure = suite.result.replace("_", " ")
    runs_each = "1 seed" if seeds == "1" else f"{seeds} seeds"
    return f"{figure} in thousands after {steps:,} steps{of}; {runs_each}"


def paper_table(suite: Suite, runs: Sequence[Row]) -> list[Row]:
    """As the paper prints it, mean and deviation in thousands; then IQM and interval; its own."""
    table = list[Row]()
    for task in dict.fromkeys(run["task"] for run in runs):
        printed = suite.printed.get(task, ())
        kinds = ("mean ± sd", "IQM", "the paper's") if printed else ("mean ± sd", "IQM")
        lines: dict[str, Row] = {kind: {"task": task, "numbers": kind} for kind in kinds}
        for place, (method, name) in enumerate(METHODS.items()):
            own = [r for r in runs if (r["task"], r["method"]) == (task, method)]
            values = np.array([run["return"] for run in own if run["return"] != _NO_EPISODE]) / 1000
            lines["mean ± sd"][name], lines["IQM"][name] = _mean(values), _middle(values)
            if printed:
                lines["the paper's"][name] = "{:.2f} ± {:.2f}".format(*printed[place])
        table += lines.values()
    return table


def _mean(values: FloatArray) -> str:
    if not len(values):
        return ""
    deviation = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{deviation}"


def _middle(values: FloatArray) -> str:
    if not len(values):
        return ""
    interval = bootstrap_interval([values])
    limits = f" [{interval.low:.3f}, {interval.high:.3f}]" if len(values) > 1 else ""
    return f"{interval.estimate:.3f}{limits}"


def draw_curves(rows: Sequence[Row]) -> str:
    """Return over training: a line per run, bold the mean over runs."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    colors = method_colors(METHODS)
    columns = min(3, len(tasks))
    lines = -(-len(tasks) // columns)
    with house_style():
        figure = Figure(figsize=(FULL, 2.9 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes in grid.flat[len(tasks) :]:
            axes.set_axis_off()
        for axes, task in zip(grid.flat, tasks, strict=False):
            for method, name in METHODS.items():
                runs: dict[int, list[tuple[float, float]]] = {}
                for row in rows:
                    if (row["task"], row["method"]) == (task, method):
                        point = (row["env_steps"], row["return"])
                        runs.setdefault(row["seed"], []).append(point)
                if not runs:
                    continue
                single = [np.array(points).T for points in runs.values()]
                for steps, values in single:
                    axes.plot(steps, values, color=colors[method], linewidth=0.5, alpha=0.5)
                first, last = max(s[0] for s, _ in single), min(s[-1] for s, _ in single)
                common = np.linspace(first, last, _CURVE_POINTS)
                mean = np.mean([np.interp(common, *run) for run in single], axis=0)
                axes.plot(common, mean, color=colors[method], linewidth=1.8, label=name)
            axes.set(title=task.replace("_", " "), xlabel="environment steps")
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        grid[0][0].set_ylabel("return")
        grid[0][0].legend(fontsize=8)
        return as_svg(figure, "curves", "Return over environment steps, by method")
