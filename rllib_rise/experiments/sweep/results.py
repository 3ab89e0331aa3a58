"""What a sweep has found: its trials as rows, its settings over seeds, and the best of them.

<out>/trials.csv     a row per trial: values, seed, state, final figures, cost
<out>/settings.csv   a row per setting: the metric over its seeds
<out>/best.yaml      the best setting, with a seed that the sweep has not used, for `rise train`
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rllib_rise.errors import RunDirectoryError
from rllib_rise.experiments.compare import FIGURES
from rllib_rise.experiments.run.run_directory import RunDirectory, write_text
from rllib_rise.experiments.statistics import Interval, bootstrap_interval
from rllib_rise.experiments.sweep.schema import METRICS, Sweep
from rllib_rise.experiments.sweep.space import label, short
from rllib_rise.experiments.sweep.trial import RUNS, TRIAL
from rllib_rise.experiments.tables import write_rows

_FIGURES = ("return", "coverage", "first_goal_steps")


@dataclass(frozen=True)
class Trial:
    """One run of a sweep.

    Attributes:
        run: Its directory.
        values: By path; with population based training, those at its end.
        seed: Its seed.
        figures: Final ones of a finished run, the last known ones of another.
    """

    run: RunDirectory
    values: dict[str, Any]
    seed: int
    figures: dict[str, Any]

    @property
    def state(self) -> str:
        """`done`, or `stopped` before its budget was used up."""
        return "done" if self.run.finished else "stopped"


@dataclass(frozen=True)
class Setting:
    """Trials that differ in their seeds only.

    Attributes:
        values: By path.
        trials: In the order of their seeds.
        metric: Over those that are finished; None if none is.
    """

    values: dict[str, Any]
    trials: tuple[Trial, ...]
    metric: Interval | None

    @property
    def label(self) -> str:
        """`alpha 0.1, lambda_0 0.02`."""
        return label(self.values)

    @property
    def finished(self) -> int:
        """How many of its trials came to their end."""
        return sum(trial.run.finished for trial in self.trials)


def read_sweep(out: Path) -> Sweep:
    """What a sweep's folder was asked for."""
    path = out / "sweep.json"
    if not path.exists():
        raise RunDirectoryError(f"{out} is not a sweep: it has no sweep.json")
    return Sweep.from_data(json.loads(path.read_text()))


def has_trials(out: Path) -> bool:
    """Whether any trial has done an iteration."""
    return bool(_trials(out))


def read_trials(out: Path) -> list[Trial]:
    """All trials that have done an iteration, in the order in which they were made."""
    found = _trials(out)
    if not found:
        raise RunDirectoryError(f"{out} has no trial with an iteration yet")
    return found


def _trials(out: Path) -> list[Trial]:
    found = []
    for path in sorted((out / RUNS).glob("*/")):
        run = RunDirectory(path)
        rows = run.read_metrics()
        if not rows or not (path / TRIAL).exists():
            continue
        told = json.loads((path / TRIAL).read_text())
        figures = run.read_result() if run.finished else _last_known(rows)
        found.append(Trial(run, told["values"], told["seed"], figures))
    return found


def settings(trials: Sequence[Trial], metric: str) -> list[Setting]:
    """The settings, best first; before all, those of which more trials are finished.

    The mean of one seed that was left to the end says less than that of all.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(json.dumps(trial.values, sort_keys=True), []).append(trial)
    found = []
    for group in groups.values():
        values = [
            trial.figures[metric]
            for trial in group
            if trial.run.finished and trial.figures.get(metric) is not None
        ]
        interval = bootstrap_interval([values]).within(*FIGURES[metric]) if values else None
        ordered = tuple(sorted(group, key=lambda trial: trial.seed))
        found.append(Setting(group[0].values, ordered, interval))
    return sorted(
        found,
        key=lambda s: (-s.finished, -s.metric.estimate) if s.metric else (math.inf, 0.0),
    )


def write_results(out: Path) -> list[Setting]:
    """Write the tables and the best setting; the settings, best first."""
    sweep, trials = read_sweep(out), read_trials(out)
    metric = sweep.search.metric
    write_rows(out / "trials.csv", [_trial_row(trial) for trial in trials])
    found = settings(trials, metric)
    write_rows(out / "settings.csv", setting_rows(found, metric))
    if found[0].metric is not None:
        # What wins a sweep is partly lucky in its seeds.
        unused = sweep.experiment.seed + sweep.search.seeds
        best = sweep.with_values(found[0].values, unused).resolved()
        seeds = f"{found[0].finished} of {len(found[0].trials)} seeds finished"
        text = f"# The best setting of a sweep: {found[0].label} ({seeds}).\n"
        write_text(out / "best.yaml", text + yaml.safe_dump(best, sort_keys=False))
    return found


def best_command(out: Path) -> str:
    """How to train with the best setting."""
    return shlex.join(["rise", "train", str(out / "best.yaml"), "--out", str(out / "best")])


def setting_rows(found: Sequence[Setting], metric: str) -> list[dict[str, Any]]:
    """A row per setting."""
    return [_setting_row(setting, metric) for setting in found]


def _last_known(rows: Sequence[dict[str, float | None]]) -> dict[str, Any]:
    """What is known of a run that was stopped."""
    last = rows[-1]
    figures = {name: last.get(column) for name, column in METRICS.items()}
    return {**figures, "env_steps": int(last["env_steps"] or 0), "seconds": last["seconds"]}


def _trial_row(trial: Trial) -> dict[str, Any]:
    figures = trial.figures
    row: dict[str, Any] = {"trial": trial.run.path.name}
    row |= {short(path): value for path, value in trial.values.items()}
    row |= {"seed": trial.seed, "state": trial.state, "env_steps": figures["env_steps"]}
    row["seconds"] = figures["seconds"]
    return row | {name: _blank(figures.get(name)) for name in _FIGURES}


def _setting_row(setting: Setting, metric: str) -> dict[str, Any]:
    interval = setting.metric
    row: dict[str, Any] = {short(path): value for path, value in setting.values.items()}
    row |= {
        "trials": len(setting.trials),
        "finished": setting.finished,
        metric: "" if interval is None else interval.estimate,
        "low": "" if interval is None else _blank(interval.low),
        "high": "" if interval is None else _blank(interval.high),
    }
    return row


def _blank(value: float | None) -> Any:
    return "" if value is None or math.isnan(value) else value
