"""The page about a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rllib_rise.experiments.compare import FIGURES
from rllib_rise.experiments.display import duration
from rllib_rise.experiments.report.curves import comparison_curves
from rllib_rise.experiments.report.html import escape, fact_list, folded, paragraph, table
from rllib_rise.experiments.report.panels import Panel, figure_section
from rllib_rise.experiments.report.runs import read_run
from rllib_rise.experiments.report.sweep_charts import Response, draw_pair, draw_response
from rllib_rise.experiments.run.phase1_files import read_phase1
from rllib_rise.experiments.statistics import bootstrap_interval
from rllib_rise.experiments.sweep.results import (
    Setting,
    Trial,
    best_command,
    read_sweep,
    write_results,
)
from rllib_rise.experiments.sweep.space import short

_SHOWN = 10
# With more distinct values than this share of the trials, a mean per value is one of single runs.
_FEW = 0.5
_MOST_CELLS = 64
_BEST, _WORST = "best", "worst"
_COLORS = {_BEST: "#0072B2", _WORST: "#D55E00"}


def sweep_page(out: Path, page: Path) -> tuple[str, list[str], list[Panel]]:
    """Title, body and panels."""
    sweep, found = read_sweep(out), write_results(out)
    metric, trials = sweep.search.metric, [t for s in found for t in s.trials]
    paths = [dimension.path for dimension in sweep.search.dimensions()]
    title = f"Sweep of {', '.join(map(short, paths))} on {sweep.experiment.env.id}"
    panels = [
        *_responses(trials, paths, metric),
        *_pairs(trials, paths, metric),
        *_extremes(found),
    ]
    body = [
        f"<h1>{escape(title)}</h1>",
        paragraph(
            "subtitle",
            escape(
                f"{sweep.experiment.algorithm}, {sweep.experiment.stop.env_steps:,} environment "
                f"steps per trial, {sweep.search.seeds} seeds per setting"
            ),
        ),
        *_headline(found, metric),
        fact_list(_cost(trials)),
        table([_line(setting, metric) for setting in found[:_SHOWN]], {}, caption=_caption(found)),
        figure_section(panels, page),
        *([folded("How to run the best one", _command(out))] if found[0].metric else []),
    ]
    return title, body, panels


def _headline(found: Sequence[Setting], metric: str) -> list[str]:
    best = found[0]
    if best.metric is None:
        finished = any(trial.run.finished for setting in found for trial in setting.trials)
        text = f"No finished trial has a {metric}." if finished else "No trial is finished yet."
        return [paragraph("note", text)]
    alike = _as_finished(found)
    text = f"<b>{escape(best.label)}</b> has the highest {metric}, {_interval(best)}"
    if len(alike) < len(found):
        text += f", of the {len(alike)} settings with {best.finished} finished seeds"
    rivals = [setting for setting in alike[1:] if _overlap(setting, best)]
    if rivals:
        text += f", but not clearly above {len(rivals)} of the {len(alike) - 1} others"
    return [paragraph("headline", f"{text}.")]


def _as_finished(found: Sequence[Setting]) -> list[Setting]:
    """The settings of which as many seeds are finished as of the first, best first."""
    return [s for s in found if s.metric is not None and s.finished == found[0].finished]


def _overlap(one: Setting, other: Setting) -> bool:
    assert one.metric is not None
    assert other.metric is not None
    limits = (one.metric.low, one.metric.high, other.metric.low, other.metric.high)
    if not np.isfinite(limits).all():
        return True
    return one.metric.high >= other.metric.low and other.metric.high >= one.metric.low


def _interval(setting: Setting) -> str:
    found = setting.metric
    if found is None:
        return "–"
    if not np.isfinite(found.low):
        return f"{found.estimate:.3g}"
    return f"{found.estimate:.3g} [{found.low:.3g}, {found.high:.3g}]"


def _cost(trials: Sequence[Trial]) -> dict[str, str]:
    seconds = sum(trial.figures["seconds"] or 0 for trial in trials)
    steps = sum(trial.figures["env_steps"] for trial in trials)
    stopped = sum(trial.state == "stopped" for trial in trials)
    fits = sum(_has_fitted(trial) for trial in trials)
    return {
        "trials": f"{len(trials)}" + (f", {stopped} stopped early" if stopped else ""),
        "environment steps": f"{steps:,}",
        "time, added up": duration(seconds),
        "time per trial": duration(seconds / len(trials)),
        **({"fits of Phase 1": f"{fits}"} if fits else {}),
    }


def _has_fitted(trial: Trial) -> bool:
    """Whether it ran Phase 1 itself, and did not take over another trial's."""
    found = read_phase1(trial.run.path)
    return found is not None and not found[0]["cached"]


def _line(setting: Setting, metric: str) -> dict[str, Any]:
    return {
        "setting": setting.label,
        metric: _interval(setting),
        "finished": f"{setting.finished} of {len(setting.trials)}",
    }


def _caption(found: Sequence[Setting]) -> str:
    many = f"The {_SHOWN} best of {len(found)} settings" if len(found) > _SHOWN else "Settings"
    return f"{many}; IQM and 95 % interval over seeds (few seeds make it wide)"


def _responses(trials: Sequence[Trial], paths: Sequence[str], metric: str) -> list[Panel]:
    panels = []
    known = [t for t in trials if t.run.finished and t.figures.get(metric) is not None]
    for path in paths:
        dots = [(_key(trial.values[path]), float(trial.figures[metric])) for trial in known]
        if len({value for value, _ in dots}) < 2:
            continue
        values = dict.fromkeys(value for value, _ in dots)
        few = len(values) <= _FEW * len(dots)
        # Trials with one seed are not independent: each seed counts once.
        seeds: dict[Any, dict[int, list[float]]] = {}
        for trial, (value, y) in zip(known, dots, strict=True):
            seeds.setdefault(value, {}).setdefault(trial.seed, []).append(y)
        means = {
            value: bootstrap_interval(
                [[float(np.mean(ys)) for ys in seeds[value].values()]], np.mean
            ).within(*FIGURES[metric])
            for value in (values if few else ())
        }
        name = f"response_{short(path).replace('.', '_')}"
        caption = "A dot per finished trial, whatever the other parameters were."
        if few:
            caption += " Line: mean over seeds and 95 % interval."
        data = [{short(path): value, metric: y} for value, y in dots]
        svg = draw_response(name, Response(short(path), dots, means), metric)
        panels.append(Panel(name, svg, caption, data))
    return panels


def _pairs(trials: Sequence[Trial], paths: Sequence[str], metric: str) -> list[Panel]:
    panels = []
    for first, second in itertools.combinations(paths, 2):
        cells: dict[tuple[Any, Any], list[float]] = {}
        for trial in trials:
            if trial.run.finished and trial.figures.get(metric) is not None:
                key = (_key(trial.values[first]), _key(trial.values[second]))
                cells.setdefault(key, []).append(float(trial.figures[metric]))
        sides = [len({key[i] for key in cells}) for i in (0, 1)]
        # A map of single trials, or of one row, says no more than the dots above.
        grid = min(sides, default=0) >= 2 and sides[0] * sides[1] <= _MOST_CELLS
        if not grid or len(cells) < sides[0] * sides[1] / 2:
            continue
        means = {key: float(np.mean(values)) for key, values in cells.items()}
        names = (short(first), short(second))
        name = f"pair_{names[0]}_{names[1]}".replace(".", "_")
        data = [
            {names[0]: key[0], names[1]: key[1], metric: value, "trials": len(cells[key])}
            for key, value in means.items()
        ]
        svg = draw_pair(name, names, means, metric)
        panels.append(Panel(name, svg, "Mean over seeds and all other parameters.", data))
    return panels


def _extremes(found: Sequence[Setting]) -> list[Panel]:
    """Learning curves of the best and the worst setting."""
    alike = _as_finished(found)
    if len(alike) < 2:
        return []
    chosen = {_BEST: alike[0], _WORST: alike[-1]}
    groups = {
        name: [read_run(trial.run.path) for trial in setting.trials]
        for name, setting in chosen.items()
    }
    labels = "; ".join(f"{name}: {setting.label}" for name, setting in chosen.items())
    return [
        Panel(panel.name, panel.svg, f"{labels}. {panel.caption}", panel.data, panel.shape)
        for panel in comparison_curves(groups, _COLORS)
    ]


def _command(out: Path) -> str:
    return f"<pre>{escape(best_command(out))}</pre>"


def _key(value: Any) -> Any:
    """Lists and mappings as text, so that they can be told apart."""
    return value if isinstance(value, int | float | str) else str(value)
