"""Numbers in the README are those of committed results, which a command in the repository made."""

from __future__ import annotations

import json
from pathlib import Path

from rllib_rise.experiments.display import interval_text
from rllib_rise.experiments.schema import load_experiment, parse_experiment

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "results" / "demo"


def test_the_readme_prints_the_demos_summary():
    summary = json.loads((DEMO / "summary.json").read_text())
    readme = (ROOT / "README.md").read_text()
    for method, values in summary["methods"].items():
        figures, goal = values["figures"], values["goal"]
        cells = [
            method,
            interval_text(figures["coverage"]),
            interval_text(figures["return"]),
            f"{goal['reached']} of {values['runs']}",
            interval_text(goal["median_steps"], digits=0),
        ]
        assert f"| {' | '.join(cells)} |" in readme


def test_the_demos_results_belong_to_the_present_config():
    asked = json.loads((DEMO / "comparison.json").read_text())
    # Read by the present schema: settings that are newer than the results have their defaults.
    then = parse_experiment(asked["experiment"]).resolved()
    assert then == load_experiment(ROOT / "configs" / "maze.yaml").resolved()
