"""What a sweep has found, from files made by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from browser import needs_browser, shown

from rllib_rise.errors import RunDirectoryError
from rllib_rise.experiments.report import write_report
from rllib_rise.experiments.run.run_directory import MetricsFile, RunDirectory
from rllib_rise.experiments.schema import load_experiment
from rllib_rise.experiments.sweep.results import read_trials, settings, write_results
from rllib_rise.experiments.sweep.schema import load_sweep

EXPERIMENT: dict[str, Any] = {
    "env": {"id": "rise/Maze-v0", "size": 5, "max_steps": 30},
    "stop": {"env_steps": 1000},
    "rllib": {"num_env_runners": 0, "train_batch_size_per_learner": 128, "minibatch_size": 64},
    "intrinsic": {"method": "rise", "k": 3},
    "search": {
        "space": {"alpha": {"grid": [0.1, 0.5]}, "lambda_0": {"grid": [0.01, 0.1]}},
        "seeds": 2,
        "metric": "coverage",
    },
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Coverage grows with alpha and falls with lambda_0; the last setting was stopped early."""
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    sweep = load_sweep(path)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "sweep.json").write_text(json.dumps(sweep.as_data()))
    cases = [(a, w, seed) for a in (0.1, 0.5) for w in (0.01, 0.1) for seed in (0, 1)]
    for number, (alpha, weight, seed) in enumerate(cases):
        values = {"intrinsic.alpha": alpha, "intrinsic.lambda_0": weight}
        stopped = (alpha, weight) == (0.1, 0.1)
        run = RunDirectory(folder / "runs" / f"t{number}")
        run.open(sweep.with_values(values, seed).resolved())
        about = {"values": values, "seed": seed, "restored": []}
        (run.path / "trial.json").write_text(json.dumps(about))
        metrics = MetricsFile(run.metrics, keep_iterations=0)
        coverage = alpha - weight + seed / 100 + 0.2
        for iteration in range(1, 3 if stopped else 6):
            row = {"iteration": iteration, "env_steps": 200 * iteration, "seconds": 2.0 * iteration}
            row |= {"coverage": coverage * iteration / 5, "episode_return_mean": 0.5}
            metrics.append(row | {"steps_per_second": 100.0})
        if not stopped:
            result = {"env_steps": 1000, "seconds": 10.0, "return": 0.5, "coverage": coverage}
            run.result.write_text(json.dumps(result | {"first_goal_steps": None}))
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_settings_are_ordered_by_what_is_looked_for(out: Path):
    found = write_results(out)
    assert [setting.label for setting in found] == [
        "alpha 0.5, lambda_0 0.01",
        "alpha 0.5, lambda_0 0.1",
        "alpha 0.1, lambda_0 0.01",
        "alpha 0.1, lambda_0 0.1",
    ]
    assert found[0].metric is not None
    assert found[0].metric.estimate == pytest.approx(0.5 - 0.01 + 0.2 + 0.005)
    assert found[0].metric.high <= 1  # coverage is a share
    assert found[-1].metric is None
    table = rows(out / "settings.csv")
    assert [row["finished"] for row in table] == ["2", "2", "2", "0"]
    assert table[-1]["coverage"] == ""


def test_a_setting_with_a_seed_less_is_behind_those_with_all(out: Path):
    (out / "runs" / "t5" / "result.json").unlink()  # the second seed of the best
    found = write_results(out)
    assert [setting.label for setting in found[1:3]] == [
        "alpha 0.1, lambda_0 0.01",
        "alpha 0.5, lambda_0 0.01",
    ]
    assert found[0].label == "alpha 0.5, lambda_0 0.1"
    assert "(2 of 2 seeds finished)" in (out / "best.yaml").read_text()


def test_trials_that_were_stopped_are_told_as_far_as_they_came(out: Path):
    write_results(out)
    table = {(r["alpha"], r["lambda_0"], r["seed"]): r for r in rows(out / "trials.csv")}
    stopped = table["0.1", "0.1", "1"]
    assert (stopped["state"], stopped["env_steps"]) == ("stopped", "400")
    assert float(stopped["coverage"]) == pytest.approx(0.21 * 2 / 5)
    assert table["0.5", "0.1", "0"]["state"] == "done"


def test_the_best_setting_is_a_file_for_training(out: Path):
    write_results(out)
    best = load_experiment(out / "best.yaml")
    assert (best.intrinsic["alpha"], best.intrinsic["lambda_0"]) == (0.5, 0.01)
    assert best.seed not in {trial.seed for trial in read_trials(out)}
    assert best.stop.env_steps == 1000


def test_what_is_looked_for_decides(out: Path):
    trials = read_trials(out)
    assert {round(s.metric.estimate, 3) for s in settings(trials, "return") if s.metric} == {0.5}


def test_the_page_shows_each_parameter_their_pair_and_the_extremes(out: Path):
    page = write_report([out]).read_text()
    for figure in ("response_alpha", "response_lambda_0", "pair_alpha_lambda_0", "coverage"):
        assert f'id="{figure}"' in page
    assert "alpha 0.5, lambda_0 0.01</b> has the highest coverage" in page
    assert "8, 2 stopped early" in page
    pairs = rows(out / "report_data" / "pair_alpha_lambda_0.csv")
    assert {(row["alpha"], row["lambda_0"]) for row in pairs} == {
        ("0.1", "0.01"), ("0.5", "0.01"), ("0.5", "0.1"),
    }  # fmt: skip


@needs_browser
def test_browser_shows_every_figure_without_complaint(out: Path):
    found = shown(write_report([out]))
    assert len(found["figures"]) == 5
    assert min(found["figures"]) > 300


def test_a_folder_that_is_no_sweep_or_has_no_trials_says_so(tmp_path: Path, out: Path):
    with pytest.raises(RunDirectoryError, match="is not a sweep"):
        write_results(tmp_path)
    for path in (out / "runs").iterdir():
        (path / "metrics.csv").unlink()
    with pytest.raises(RunDirectoryError, match="no trial with an iteration yet"):
        write_results(out)
