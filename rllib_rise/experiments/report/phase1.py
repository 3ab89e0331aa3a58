"""The section about Phase 1: what it found before training began, and where its time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rllib_rise.experiments.display import duration
from rllib_rise.experiments.report.html import fact_list, paragraph, table
from rllib_rise.experiments.report.panels import Panel, figure_section
from rllib_rise.experiments.report.phase1_charts import draw_seconds, seconds_text
from rllib_rise.experiments.report.phase1_panels import Subject, subject_panels
from rllib_rise.experiments.report.runs import Run

_HEADING = "<h2>Phase 1</h2>"
_WHAT_IT_IS = """Before training, the initial policy collects observations; from them the encoder is
fitted, where it needs that, and k is searched, unless it is given. Both stay as they are for the
rest of the run. The environment steps count in the budget."""
_STEPS = {
    "collect": "collect observations",
    "fit": "fit the encoder",
    "embed": "embed observations",
    "search_k": "search k",
    "share": "share the result",
}
_CACHED = "from the cache"
_MAX_SUBJECTS = 3


def phase1_section(
    runs: Sequence[Run], colors: Mapping[str, str], page: Path
) -> tuple[str, list[Panel]]:
    """The section as HTML, and its panels; both are empty if no run had a Phase 1.

    Args:
        runs: With labels that tell them apart.
        colors: By label.
        page: Where the section will stand.
    """
    found = {run.label: files for run in runs if (files := run.phase1()) is not None}
    if not found:
        return "", []
    subjects = _subjects(found, colors, alone=len(runs) == 1)
    # A section for each, so that the figures of one do not stand between those of another.
    sections = [subject_panels(subject) for subject in subjects[:_MAX_SUBJECTS]]
    if len(runs) == 1:
        ((label, (report, _)),) = found.items()
        shown = [_facts_of_one(report)]
        sections[-1] += _seconds_panel(label, report, colors[label])
    else:
        rows = [{"run": label, **_run_facts(report)} for label, (report, _) in found.items()]
        tables = _module_table(found, colors) + table(rows, colors, caption="What it took")
        shown = [f'<div class="columns">{tables}</div>']
    if len(subjects) > _MAX_SUBJECTS:
        text = f"Figures of the first {_MAX_SUBJECTS} of {len(subjects)}."
        shown.append(paragraph("reading", text))
    figures = [figure_section(panels, page) for panels in sections if panels]
    body = [_HEADING, paragraph("reading", _WHAT_IT_IS), *shown, *figures]
    return "\n".join(body), [panel for panels in sections for panel in panels]


def phase1_lines(groups: Mapping[str, Sequence[Run]], colors: Mapping[str, str]) -> list[str]:
    """A line per method that had a Phase 1, as HTML; empty if none had."""
    rows = []
    for method, runs in groups.items():
        reports = [found[0] if (found := run.phase1()) else None for run in runs]
        done = [report for report in reports if report is not None]
        if not done:
            continue
        modules = dict.fromkeys(module for report in done for module in report["modules"])
        chosen = {
            module: ", ".join(_k_of(report, module) for report in reports) for module in modules
        }
        cached = sum(report["cached"] for report in done)
        rows.append(
            {
                "method": method,
                "k per seed": "; ".join(
                    text if len(chosen) == 1 else f"{module}: {text}"
                    for module, text in chosen.items()
                ),
                "median time": _time(median(sum(r["seconds"].values()) for r in done)),
                _CACHED: f"{cached} of {len(done)}" if cached else "no",
            }
        )
    if not rows:
        return []
    caption = "k of each seed, and the time before training."
    return [_HEADING, table(rows, colors, caption=caption)]


def _subjects(
    found: Mapping[str, tuple[dict[str, Any], dict[str, Any]]],
    colors: Mapping[str, str],
    *,
    alone: bool,
) -> list[Subject]:
    """Every module of every run, named as far as that is needed to tell them apart."""
    subjects: list[Subject] = []
    for run, (report, arrays) in found.items():
        for module, facts in report["modules"].items():
            names = ([] if alone else [run]) + ([module] if len(report["modules"]) > 1 else [])
            own = {
                name: array
                for key, array in arrays.items()
                for owner, _, name in [key.rpartition("/")]
                if owner == module
            }
            label = ", ".join(names)
            number = len(subjects) + 1
            subjects.append(Subject(run, module, label, number, colors[run], facts, own))
    return subjects


def _facts_of_one(report: dict[str, Any]) -> str:
    """Of a single run: large figures, and a table where it has several modules."""
    modules = report["modules"]
    facts = {"environment steps": f"{report['env_steps']:,}", "time": _time(_total(report))}
    if report["cached"]:
        facts["observations and encoder"] = _CACHED
    if len(modules) == 1:
        return fact_list(_module_facts(next(iter(modules.values()))) | facts)
    rows = [{"module": name, **_module_facts(module)} for name, module in modules.items()]
    return fact_list(facts) + table(rows, {})


def _module_table(
    found: Mapping[str, tuple[dict[str, Any], dict[str, Any]]], colors: Mapping[str, str]
) -> str:
    several = any(len(report["modules"]) > 1 for report, _ in found.values())
    rows = [
        {"run": label} | ({"module": name} if several else {}) | _module_facts(module)
        for label, (report, _) in found.items()
        for name, module in report["modules"].items()
    ]
    return table(rows, colors, caption="What came of it")


def _module_facts(module: dict[str, Any]) -> dict[str, str]:
    facts = {"encoder": module["encoder"]}
    if module["embedding_size"] is not None:
        facts["embedding size"] = f"{module['embedding_size']:,}"
    if module["observations"] is not None:
        facts["observations"] = f"{module['observations']:,}"
    search = module["k_search"]
    facts["k"] = f"{module['k']} " + (f"(of 1 to {search['k_max']})" if search else "(given)")
    return facts


def _run_facts(report: dict[str, Any]) -> dict[str, str]:
    steps = {_step(name): seconds_text(value) for name, value in report["seconds"].items()}
    return {
        "environment steps": f"{report['env_steps']:,}",
        "observations and encoder": _CACHED if report["cached"] else "from this run",
        "time": _time(_total(report)),
        **steps,
    }


def _seconds_panel(run: str, report: dict[str, Any], color: str) -> list[Panel]:
    seconds = report["seconds"]
    if not seconds:
        return []
    name, title = "phase1_seconds", "time of Phase 1"
    caption = f"Where the {seconds_text(_total(report))} before training went."
    if report["cached"]:
        title += f", {_CACHED}"
        caption += " The observations and the encoder come from an earlier run like this one."
    bars = {_step(step): value for step, value in seconds.items()}
    data = [{"run": run, "step": step, "seconds": value} for step, value in seconds.items()]
    return [Panel(name, draw_seconds(name, bars, color, title), caption, data)]


def _step(name: str) -> str:
    return _STEPS.get(name, name.replace("_", " "))


def _total(report: dict[str, Any]) -> float:
    return float(sum(report["seconds"].values()))


def _time(seconds: float) -> str:
    return seconds_text(seconds) if seconds < 60 else duration(seconds)


def _k_of(report: dict[str, Any] | None, module: str) -> str:
    if report is None or module not in report["modules"]:
        return "–"
    return str(report["modules"][module]["k"])
