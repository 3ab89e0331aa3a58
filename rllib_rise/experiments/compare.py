"""Several methods, several seeds, the same budget: run side by side, then statistics.

<out>/comparison.json                what was asked
<out>/<method>/seed_<n>/             a run directory each
<out>/runs.csv                       the final figures of every run
<out>/summary.json                   per method and figure: estimate and interval; improvement
<out>/phase1-cache/                  fits of Phase 1, shared by runs that differ in nothing of it
<out>/report.html
"""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray

from rllib_rise.bonuses.registry import NONE
from rllib_rise.errors import ConfigError, RiseError, RunDirectoryError
from rllib_rise.experiments.progress import PlannedRun, RunProgress
from rllib_rise.experiments.resources import needed_cpus
from rllib_rise.experiments.run.run_directory import (
    RunDirectory,
    already_there,
    holds_something,
    versions,
    write_json,
)
from rllib_rise.experiments.run.same_experiment import refuse_changes
from rllib_rise.experiments.schema import Experiment, parse_experiment
from rllib_rise.experiments.statistics import (
    Interval,
    bootstrap_interval,
    censored_median,
    probability_of_improvement,
)
from rllib_rise.rllib.phase1.cache import CACHE_FOLDER

# Figures of a finished run, in the order of the tables, and the range they must lie in.
FIGURES = {"coverage": (0.0, 1.0), "return": (-math.inf, math.inf)}
BEYOND_BUDGET = "> budget"
_POLL_SECONDS = 1.0


def entries(out: Path, methods: Sequence[str], seeds: Sequence[int]) -> list[PlannedRun]:
    """All runs, seeds outermost, so that an interrupted comparison is still a fair one."""
    return [PlannedRun(m, s, out / folder_name(m) / f"seed_{s}") for s in seeds for m in methods]


def folder_name(method: str) -> str:
    """A method's name as a folder."""
    return method.replace(":", ".")


def compare(
    experiment: Experiment,
    out: Path,
    *,
    methods: Sequence[str],
    seeds: int,
    resume: bool = False,
    max_concurrent: int | None = None,
    on_progress: Callable[[list[RunProgress]], None] = lambda progress: None,
) -> dict[str, Any]:
    """Run every method with every seed (as many at a time as there are cores) and summarise.

    Finished runs are not run again; unfinished ones go on from their last checkpoint.
    """
    if len(set(methods)) != len(methods) or not methods:
        raise ConfigError(f"--methods {','.join(methods)}: name each method once")
    if seeds < 1:
        raise ConfigError(f"--seeds {seeds} must be at least 1")
    if experiment.stop.episode_return is not None:
        raise ConfigError(
            "stop.episode_return would give the better method fewer steps: a comparison has one "
            "budget, leave it out"
        )
    experiments = {m: experiment.with_method(m, experiment.seed) for m in methods}
    all_seeds = list(range(experiment.seed, experiment.seed + seeds))
    _open(experiment, out, methods, all_seeds, resume=resume)
    todo = entries(out, methods, all_seeds)
    per_run = needed_cpus(experiment)
    cores = int(ray.cluster_resources().get("CPU", 1))
    limit = max_concurrent or max(1, cores // per_run)
    failures = _run_all(experiments, todo, out / CACHE_FOLDER, limit, on_progress)
    if failures:
        lines = "; ".join(f"{e.method} seed {e.seed}: {reason}" for e, reason in failures)
        raise RiseError(
            f"{len(failures)} of {len(todo)} runs failed ({lines}). The others are finished; once "
            "that is fixed, --resume goes on"
        )
    return summarise(out)


def summarise(out: Path) -> dict[str, Any]:
    """Statistics over the finished runs of a comparison; writes runs.csv and summary.json."""
    asked = read_comparison(out)
    runs: dict[str, list[dict[str, Any]]] = {}
    for method in asked["methods"]:
        finished = [
            {"method": method, "seed": _seed(path), **run.read_result()}
            for path in sorted((out / folder_name(method)).glob("seed_*"), key=_seed)
            if (run := RunDirectory(path)).finished
        ]
        if finished:
            runs[method] = finished
    if not runs:
        raise RunDirectoryError(f"{out} has no finished run yet")
    runs = _same_seeds(runs, out)
    _write_csv(out / "runs.csv", [run for finished in runs.values() for run in finished])
    baseline = NONE if NONE in runs else next(iter(runs))
    budget = asked["experiment"]["stop"]["env_steps"]
    methods = {}
    for method, finished in runs.items():
        methods[method] = {"runs": len(finished), "figures": _figures(finished)}
        goal = _goal_figures(finished, budget)
        if goal:
            methods[method]["goal"] = goal
        for name in ("steps_per_second", "bonus_left", "bonus_seconds", "bonus_megabytes"):
            values = [run[name] for run in finished if name in run]
            if len(values) == len(finished):
                methods[method][name] = statistics.median(values)
    improvement = {
        method: {
            figure: _as_json(probability_of_improvement([_values(finished, figure)], [base]))
            for figure in FIGURES
            if len(base := _values(runs[baseline], figure)) and _values(finished, figure)
        }
        for method, finished in runs.items()
        if method != baseline
    }
    summary = {
        "budget": budget,
        "seeds": sorted(run["seed"] for run in next(iter(runs.values()))),
        "baseline": baseline,
        "methods": methods,
        "improvement": improvement,
        "warnings": [
            f"{method} seed {run['seed']}: {text}"
            for method, finished in runs.items()
            for run in finished
            for text in run.get("warnings", [])
        ],
        "versions": versions(),
    }
    write_json(out / "summary.json", summary)
    return summary


def _same_seeds(
    runs: dict[str, list[dict[str, Any]]], out: Path
) -> dict[str, list[dict[str, Any]]]:
    """Only the seeds that every method has finished: the same for all."""
    common = set.intersection(*({run["seed"] for run in finished} for finished in runs.values()))
    if not common:
        raise RunDirectoryError(f"{out} has no seed yet that every method has finished")
    return {m: [run for run in finished if run["seed"] in common] for m, finished in runs.items()}


def read_comparison(out: Path) -> dict[str, Any]:
    """What a comparison directory was asked for."""
    path = out / "comparison.json"
    if not path.exists():
        raise RunDirectoryError(f"{out} is not a comparison: it has no comparison.json")
    return json.loads(path.read_text())


def _open(
    experiment: Experiment, out: Path, methods: Sequence[str], seeds: list[int], *, resume: bool
) -> None:
    asked = {"methods": list(methods), "seeds": seeds, "experiment": experiment.resolved()}
    if holds_something(out):
        if not resume:
            raise already_there(out)
        before = read_comparison(out)
        refuse_changes(out, before["experiment"], experiment.resolved())
        asked["methods"] = list(dict.fromkeys([*before["methods"], *methods]))
        asked["seeds"] = sorted({*before["seeds"], *seeds})
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "comparison.json", asked)


def _run_all(
    experiments: dict[str, Experiment],
    todo: list[PlannedRun],
    cache: Path,
    limit: int,
    on_progress: Callable[[list[RunProgress]], None],
) -> list[tuple[PlannedRun, str]]:
    waiting = list(todo)
    running: dict[Any, PlannedRun] = {}
    failures: list[tuple[PlannedRun, str]] = []
    while waiting or running:
        while waiting and len(running) < limit:
            entry = waiting.pop(0)
            if RunDirectory(entry.directory).finished:
                continue
            data = {**experiments[entry.method].resolved(), "seed": entry.seed}
            task = _run_one.remote(data, str(entry.directory.resolve()), str(cache.resolve()))
            running[task] = entry
        done, _ = ray.wait(list(running), timeout=_POLL_SECONDS) if running else ([], [])
        for task in done:
            entry = running.pop(task)
            try:
                ray.get(task)
            except ray.exceptions.RayError as error:
                failures.append((entry, str(error).strip().splitlines()[-1]))
        active = {entry.directory for entry in running.values()}
        on_progress([_progress(entry, experiments[entry.method], active) for entry in todo])
    return failures


@ray.remote(num_cpus=1, max_retries=0)
def _run_one(data: dict[str, Any], directory: str, cache: str) -> None:
    from rllib_rise.experiments.run.train import train

    experiment = parse_experiment(data)
    run = RunDirectory(Path(directory))
    train(experiment, run.path, resume=run.exists, cache=Path(cache))


def _progress(entry: PlannedRun, experiment: Experiment, active: set[Path]) -> RunProgress:
    run = RunDirectory(entry.directory)
    last = _last_row(run)
    state = "done" if run.finished else "running" if entry.directory in active else "waiting"
    if state == "running" and not last:
        state = run.last_of_phase1() or state
    coverage = last.get("coverage")
    return RunProgress(
        entry,
        env_steps=int(float(last.get("env_steps") or 0)),
        budget=experiment.stop.env_steps,
        state=state,
        coverage=float(coverage) if coverage else None,
    )


def _last_row(run: RunDirectory) -> dict[str, str]:
    """The last complete row of metrics.csv, without reading all of it."""
    if not run.metrics.exists():
        return {}
    with run.metrics.open("rb") as stream:
        header = stream.readline().decode().strip()
        stream.seek(0, 2)
        stream.seek(max(len(header) + 1, stream.tell() - 4096))
        lines = stream.read().decode().rsplit("\n", 1)[0].splitlines()
    return dict(zip(header.split(","), lines[-1].strip().split(","), strict=False)) if lines else {}


def _figures(finished: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        figure: {**_as_json(bootstrap_interval([values]).within(*bounds)), "runs": len(values)}
        for figure, bounds in FIGURES.items()
        if (values := _values(finished, figure))
    }


def _goal_figures(finished: list[dict[str, Any]], budget: int) -> dict[str, Any]:
    """Steps to the first goal; a run that never got there is censored at the budget."""
    if not any("coverage" in run for run in finished):
        return {}
    steps = [run["first_goal_steps"] for run in finished]
    return {
        "reached": sum(step is not None for step in steps),
        "median_steps": _as_json(censored_median(steps, budget=budget)),
    }


def _as_json(interval: Interval) -> dict[str, Any]:
    """An interval for JSON, which has no infinity (later than the budget) and no NaN (unknown)."""
    return {
        key: BEYOND_BUDGET if value == math.inf else None if math.isnan(value) else value
        for key, value in vars(interval).items()
    }


def _values(finished: list[dict[str, Any]], figure: str) -> list[float]:
    return [run[figure] for run in finished if run.get(figure) is not None]


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row if key != "warnings"))
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def _seed(path: Path) -> int:
    return int(path.name.removeprefix("seed_"))
