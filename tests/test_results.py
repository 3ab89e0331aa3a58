"""Numbers in the docs are those of committed comparisons, which commands in the repository made."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from rllib_rise.bonuses.registry import WITHOUT_BONUS
from rllib_rise.experiments.report.panels import standalone
from rllib_rise.experiments.schema import load_experiment, parse_experiment
from rllib_rise.experiments.sweep.schema import load_sweep

ROOT = Path(__file__).parent.parent
RESULTS = sorted(path.parent for path in ROOT.glob("results/**/comparison.json"))
NAMES = [folder.relative_to(ROOT / "results").as_posix() for folder in RESULTS]
# The config of a comparison, where it is not of the same name.
CONFIGS = {"demo": "maze"}


def load(path: str):
    """A program that is in no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for what their annotations mean
    spec.loader.exec_module(module)
    return module


def test_the_docs_print_the_summaries():
    comparisons = load("docs/comparisons.py")
    for page, text in comparisons.pages().items():
        assert text == page.read_text(), "run: python docs/comparisons.py"
    assert sorted(comparisons.shown()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_results_belong_to_the_present_config(name: str):
    asked = json.loads((ROOT / "results" / name / "comparison.json").read_text())
    # Read by the present schema: settings that are newer than the results have their defaults.
    then = parse_experiment(asked["experiment"]).resolved()
    config = ROOT / "configs" / f"{CONFIGS.get(name, name)}.yaml"
    assert then == load_experiment(config).resolved()


@pytest.mark.skipif(
    not (ROOT / "benchmarks" / "results").exists(), reason="no results are committed"
)
def test_the_page_of_the_benchmark_is_made_from_its_results():
    performance = load("docs/performance.py")
    assert performance.page() == performance.PAGE.read_text(), "run: python docs/performance.py"


def test_the_table_of_faults_is_made_from_their_results():
    faults = load("docs/faults.py")
    assert faults.page() == faults.PAGE.read_text(), "run: python docs/faults.py"


RELIABILITY = pytest.mark.skipif(
    not {"tests.json", "soak.csv"}
    <= {path.name for path in (ROOT / "results").glob("reliability/*")},
    reason="no results are committed",
)


@RELIABILITY
def test_the_page_of_reliability_is_made_from_its_results():
    reliability = load("docs/reliability.py")
    assert reliability.page() == reliability.PAGE.read_text(), "run: python docs/reliability.py"


@RELIABILITY
def test_the_page_of_reliability_has_what_is_tested():
    """Every fault, property and case: a test that failed says nothing."""
    tests = json.loads((ROOT / "results" / "reliability" / "tests.json").read_text())["tests"]
    said = {
        kind: [test[kind] for test in tests.values() if kind in test]
        for kind in ("fault", "fuzz", "resumed")
    }
    faults = set(load("tests/experiments/test_injected_faults.py").ENDS)
    for path in ROOT.glob("tests/experiments/*.py"):
        faults |= set(re.findall(r'"fault": "(.*?)"', path.read_text()))
    assert {one["fault"] for one in said["fault"]} == faults, "run: make reliability"
    assert sorted(said["resumed"]) == sorted(load("tests/rllib/test_exact_resume.py").CASES)
    properties = [
        name.replace("_", " ")
        for path in ROOT.glob("tests/fuzz/test_*.py")
        for name in re.findall(r"^@fuzz\(.*?^def test_(\w+)", path.read_text(), re.DOTALL | re.M)
    ]
    # Each with few examples and with many.
    assert sorted(one["property"] for one in said["fuzz"]) == sorted(2 * properties)


SWEEPS = sorted(path.parent for path in ROOT.glob("results/sweeps/**/sweep.json"))


@pytest.mark.parametrize("folder", SWEEPS, ids=lambda f: str(f.relative_to(ROOT / "results")))
def test_the_sweeps_belong_to_the_present_files(folder: Path):
    name = folder.relative_to(ROOT / "results" / "sweeps")
    asked = json.loads((folder / "sweep.json").read_text())
    present = load_sweep(ROOT / "tune_experiments" / f"{name}.yaml")
    assert parse_experiment(asked["experiment"]).resolved() == present.experiment.resolved()
    assert asked["search"] == present.as_data()["search"]


def test_the_page_of_sweeps_is_made_from_their_results():
    sweeps = load("docs/sweeps.py")
    assert sweeps.page() == sweeps.PAGE.read_text(), "run: python docs/sweeps.py"
    shown = [ROOT / "results" / "sweeps" / name for name in sweeps.shown()]
    assert sorted(shown) == SWEEPS


def test_the_page_of_reproductions_is_made_from_their_results():
    reproduction = load("docs/reproduction.py")
    assert reproduction.page() == reproduction.PAGE.read_text(), "run: python docs/reproduction.py"
    for path, svg in reproduction.figures().items():
        assert standalone(svg) + "\n" == path.read_text(), "run: python docs/reproduction.py"


@pytest.mark.parametrize("folder", sorted((ROOT / "results" / "reproduce").iterdir()))
def test_a_reproduction_says_which_command_made_it(folder: Path):
    about = json.loads((folder / "about.json").read_text())
    assert about["command"] == f"rise reproduce {folder.name} --scale {about['scale']}"
    assert about["scale"] != "small"


def test_the_docs_print_what_keeps_dqn_from_following_the_bonus():
    table = load("benchmarks/replayed_novelty.py").table()
    assert table in (ROOT / "docs" / "algorithms.md").read_text()


def test_the_page_says_whether_the_faster_code_learns_the_same():
    study = load("benchmarks/same_learning.py")
    text = study.PAGE.read_text()
    assert study.page() == text, "run: python benchmarks/same_learning.py"
    assert "| maze | coverage | 20 |" in text
    means = [np.array([8.0, 10.0, 12.0]), np.array([9.0, 11.0, 13.0])]
    middle, low, high = study.difference(*means)
    # Welch: 1 of 10, t(4) at 5 % is 2.132, and each mean has a variance of 4/3.
    assert (middle, low) == pytest.approx((0.1, 0.1 - 0.2132 * (8 / 3) ** 0.5), abs=1e-4)
    assert high == pytest.approx(0.2 - low)


def test_every_method_has_the_weight_that_tuning_found():
    """The highest return; of equal ones, the highest coverage."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with (ROOT / "results" / "rivals" / "maze_tuning" / "runs.csv").open() as stream:
        for row in csv.DictReader(stream):
            method, _, weight = row["method"].rpartition("-")
            weights = found.setdefault(method, {})
            weights.setdefault(weight, []).append((float(row["return"]), float(row["coverage"])))
    best = {
        method: float(max(weights, key=lambda weight: np.mean(weights[weight], axis=0).tolist()))
        for method, weights in found.items()
        if method
    }
    comparison = load_experiment(ROOT / "configs" / "rivals" / "maze.yaml")
    given = {
        method: comparison.settings_of(method)["lambda_0"]
        for method in [comparison.method, *comparison.methods]
        if method not in WITHOUT_BONUS
    }
    assert given.pop("shuffled") == best["rise"]
    assert given == best
