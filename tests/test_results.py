"""Numbers in the docs are those of committed comparisons, which commands in the repository made."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from rllib_rise.experiments.display import interval_text
from rllib_rise.experiments.schema import load_experiment, parse_experiment

ROOT = Path(__file__).parent.parent
RESULTS = sorted(path.parent for path in ROOT.glob("results/*/comparison.json"))
# The config and the page of a comparison, where they are not of the same name and algorithms.md.
CONFIGS = {"demo": "maze"}
PAGES = {"demo": "README.md"}


@pytest.mark.parametrize("folder", RESULTS, ids=lambda folder: folder.name)
def test_the_docs_print_the_summary(folder: Path):
    summary = json.loads((folder / "summary.json").read_text())
    page = (ROOT / PAGES.get(folder.name, "docs/algorithms.md")).read_text()
    for method, values in summary["methods"].items():
        figures, goal = values["figures"], values["goal"]
        cells = [
            method,
            interval_text(figures["coverage"]),
            interval_text(figures["return"]),
            f"{goal['reached']} of {values['runs']}",
            interval_text(goal["median_steps"], digits=0),
        ]
        assert f"| {' | '.join(cells)} |" in page


@pytest.mark.parametrize("folder", RESULTS, ids=lambda folder: folder.name)
def test_the_results_belong_to_the_present_config(folder: Path):
    asked = json.loads((folder / "comparison.json").read_text())
    # Read by the present schema: settings that are newer than the results have their defaults.
    then = parse_experiment(asked["experiment"]).resolved()
    name = CONFIGS.get(folder.name, folder.name)
    assert then == load_experiment(ROOT / "configs" / f"{name}.yaml").resolved()


def test_the_docs_print_what_keeps_dqn_from_following_the_bonus():
    path = ROOT / "benchmarks" / "replayed_novelty.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    assert study.table() in (ROOT / "docs" / "algorithms.md").read_text()
