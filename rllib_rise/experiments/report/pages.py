"""The page about runs and the page about a comparison."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from rllib_rise.errors import RunDirectoryError
from rllib_rise.experiments.compare import read_comparison, summarise
from rllib_rise.experiments.display import comparison_table, duration
from rllib_rise.experiments.report.canvas import method_colors
from rllib_rise.experiments.report.curves import comparison_curves, run_curves
from rllib_rise.experiments.report.details import details_section
from rllib_rise.experiments.report.findings import headline, listed
from rllib_rise.experiments.report.html import document, escape, fact_list, paragraph, table
from rllib_rise.experiments.report.panels import Panel, data_folder, figure_section, write_data
from rllib_rise.experiments.report.phase1 import phase1_lines, phase1_section
from rllib_rise.experiments.report.runs import (
    COVERAGE,
    RETURN,
    Run,
    read_groups,
    read_run,
    settled,
)
from rllib_rise.experiments.report.sweep_page import sweep_page
from rllib_rise.experiments.report.visits import first_goal_panel, visit_panel
from rllib_rise.experiments.run.run_directory import write_text

_HOW_TO_READ = """Coverage is the share of the reachable cells that a run
visited at least once; return is that of the episodes in the last tenth of a run. IQM is the mean
of the middle half of the seeds (of all, below four). Brackets hold 95&nbsp;% intervals over seeds;
below five seeds they are symmetric. Where two intervals overlap,
these runs do not settle which method is better. P(x &gt; y) is the probability that a run of the
method beats a run of the baseline, 0.5 being a tie. All environment steps count, whatever they
were used for."""


def write_report(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page about one or more runs, about one comparison, or about one sweep.

    Args:
        paths: Run directories, or the directory of a comparison or a sweep. Unfinished ones are
            welcome.
        out: The page; by default `report.html` in the directory, or in the current folder where
            there are several. The data of the figures go into a folder beside it.

    Returns:
        The page.

    Raises:
        RunDirectoryError: A path is no run, has nothing to show yet, or comparisons are mixed with
            anything else.
    """
    paths = list(dict.fromkeys(Path(path) for path in paths))
    if not paths:
        raise RunDirectoryError("no run directory given: name at least one")
    if out is None:
        # Several runs share a page in the current folder; each keeps its own.
        out = Path("report.html") if len(paths) > 1 else paths[0] / "report.html"
    page = Path(out)
    if page.is_dir():
        page = page / "report.html"
    kinds = {"comparison": _comparison_page, "sweep": sweep_page}
    for kind, make in kinds.items():
        found = [path for path in paths if (path / f"{kind}.json").exists()]
        if found and len(paths) > 1:
            raise RunDirectoryError(
                f"{found[0]} is a {kind}: report on it alone, or on run directories in it"
            )
        if found:
            title, body, panels = make(found[0], page)
            break
    else:
        title, body, panels = _runs_page(paths, page)
    write_data(panels, page)
    write_text(page, document(title, "\n".join(body)))
    return page


def _runs_page(paths: Sequence[Path], page: Path) -> tuple[str, list[str], list[Panel]]:
    runs = _labelled([read_run(path) for path in paths])
    colors = _run_colors(runs)
    curves = run_curves(runs, colors)
    place = 1 if len(runs) == 1 else 2  # beside return and coverage, or below them
    panels = [*curves[:place], *visit_panel(runs, colors), *curves[place:]]
    before, phase1_panels = phase1_section(runs, colors, page)
    environments = listed(dict.fromkeys(str(run.env["id"]) for run in runs))
    if len(runs) == 1:
        title = f"{environments}: {runs[0].config['algorithm']} + {runs[0].label}"
        facts = fact_list(_facts(runs[0]))
    else:
        title = f"{len(runs)} runs on {environments}"
        facts = table([{"run": run.label, **_facts(run)} for run in runs], colors)
    configs = [os.path.relpath(run.directory.config, page.parent) for run in runs]
    commands = [shlex.join(["rise", "train", config, "--out", "NEW_FOLDER"]) for config in configs]
    body = [
        f"<h1>{escape(title)}</h1>",
        *map(_unfinished_note, runs),
        facts,
        figure_section(panels, page),
        before,
        details_section(runs, commands, unfold=True),
    ]
    return title, body, [*panels, *phase1_panels]


def _labelled(runs: Sequence[Run]) -> list[Run]:
    """The runs with labels that tell them apart."""
    names = [f"{run.method}, seed {run.seed}" for run in runs]
    return [
        replace(run, label=name if names.count(name) == 1 else f"{name} ({run.directory.path})")
        for name, run in zip(names, runs, strict=True)
    ]


def _run_colors(runs: Sequence[Run]) -> dict[str, str]:
    """A colour per label: that of the method, unless several runs have the same method."""
    by_method = len({run.method for run in runs}) == len(runs)
    names = [run.method if by_method else run.label for run in runs]
    palette = method_colors(names)
    return {run.label: palette[name] for run, name in zip(runs, names, strict=True)}


def _facts(run: Run) -> dict[str, str]:
    """The figures worth a glance; of an unfinished run, as far as it is."""
    last, returns = run.rows[-1], run.series(RETURN)[1]
    result = run.result or {
        "env_steps": last["env_steps"],
        "seconds": last["seconds"],
        "steps_per_second": (last["env_steps"] or 0) / (last["seconds"] or 1),
        "return": returns[-1] if returns else None,
        "coverage": last.get(COVERAGE),
        "first_goal_steps": next(
            (row["env_steps"] for row in run.rows if (row.get("goals_reached") or 0) > 0), None
        ),
    }
    facts = {
        "environment steps": f"{result['env_steps']:,.0f}",
        "steps/s": f"{result['steps_per_second']:,.0f}",
        "time": duration(result["seconds"]),
        "final return" if run.result else "latest return": "no episode ended"
        if result["return"] is None
        else f"{result['return']:,.4g}",
    }
    bonus = sum(run.series("intrinsic_seconds")[1])
    if bonus > 0:
        facts["of it bonus"] = f"{bonus / result['seconds']:.1%}"
    if result.get("coverage") is not None:
        goal = result["first_goal_steps"]
        facts["coverage"] = f"{result['coverage']:.2f}"
        missing = "never" if run.result else "not yet"
        facts["first goal"] = missing if goal is None else f"{goal:,.0f} steps"
    return facts


def _unfinished_note(run: Run) -> str:
    if run.result:
        return ""
    done, budget = run.rows[-1]["env_steps"] or 0, run.config["stop"]["env_steps"]
    text = (
        f"{run.label} is not finished: {done:,.0f} of {budget:,} environment steps. "
        "Write the page again to see more."
    )
    return paragraph("note", escape(text))


def _comparison_page(out: Path, page: Path) -> tuple[str, list[str], list[Panel]]:
    asked = read_comparison(out)
    experiment, budget = asked["experiment"], asked["experiment"]["stop"]["env_steps"]
    groups = read_groups(out, asked["methods"])
    everything = [run for runs in groups.values() for run in runs]
    colors = method_colors(groups)
    summary = summarise(out) if any(run.result for run in everything) else None
    curves = comparison_curves(groups, colors)
    panels = [
        *curves[:2],
        *visit_panel([run for runs in groups.values() for run in settled(runs)], colors),
        *curves[2:],
        *first_goal_panel(groups, colors, budget),
    ]
    fewest, most = min(map(len, groups.values())), max(map(len, groups.values()))
    title = f"{listed(groups)} on {everything[0].env['id']}"
    subtitle = (
        f"{experiment['algorithm']}, {budget:,} environment steps per run, "
        f"{most if fewest == most else f'{fewest} to {most}'} "
        f"{'seed' if fewest == most == 1 else 'seeds'} per method"
    )
    recipe = data_folder(page) / "experiment.yaml"
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(yaml.safe_dump(experiment, sort_keys=False))
    command = ["rise", "compare", str(recipe.relative_to(page.parent))]
    command += ["--methods", ",".join(groups), "--seeds", str(most), "--out", "NEW_FOLDER"]
    firsts = [runs[0] for runs in groups.values() if runs]
    body = [
        f"<h1>{escape(title)}</h1>",
        paragraph("subtitle", escape(subtitle)),
        *_incomplete_note(groups),
        *(_findings(summary, colors) if summary is not None else []),
        paragraph("reading", _HOW_TO_READ),
        figure_section(panels, page),
        *phase1_lines(groups, colors),
        details_section(firsts, [shlex.join(command)], unfold=False),
    ]
    return title, body, panels


def _incomplete_note(groups: dict[str, list[Run]]) -> list[str]:
    finished = [bool(run.result) for runs in groups.values() for run in runs]
    waiting = [method for method, runs in groups.items() if not runs]
    if all(finished) and not waiting:
        return []
    text = (
        f"This comparison is not finished: {sum(finished)} of {len(finished)} runs that "
        "were started are done. The table counts finished runs only."
    )
    if waiting:
        text += f" No run yet: {listed(waiting)}."
    return [paragraph("note", escape(text))]


def _findings(summary: dict[str, Any], colors: dict[str, str]) -> list[str]:
    """The headline, and the table of the terminal with the speed added."""
    sentences = headline(
        summary, lambda name: f'<b style="color:{colors[name]}">{escape(name)}</b>'
    )
    shown = comparison_table(summary)
    names = [str(column.header) for column in shown.columns]
    lines = zip(*(column.cells for column in shown.columns), strict=True)
    rows = [
        dict(zip(names, [str(cell) or "–" for cell in line], strict=True)) | _cost(values)
        for line, values in zip(lines, summary["methods"].values(), strict=True)
    ]
    return [
        *(paragraph("headline", sentence) for sentence in sentences),
        table(rows, colors, caption=str(shown.title)),
    ]


def _cost(values: dict[str, Any]) -> dict[str, str]:
    """How fast a method's runs were; of its bonus, what it took of that and what is left of it."""
    cost = {"steps/s": f"{values['steps_per_second']:,.0f}"}
    if "bonus_seconds" in values:
        cost["bonus, ms per update"] = f"{1000 * values['bonus_seconds']:,.3g}"
    if "bonus_megabytes" in values:
        cost["bonus, MB kept"] = f"{values['bonus_megabytes']:,.2g}"
    if "bonus_left" in values:
        cost["bonus, last over first tenth"] = f"{values['bonus_left']:,.2g}"
    return cost
