"""Sweep files: what they mean, and what they must not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.schema import load_experiment
from rllib_rise.experiments.sweep.run import _param_space
from rllib_rise.experiments.sweep.schema import load_sweep
from rllib_rise.experiments.sweep.trial import trial_experiment

ROOT = Path(__file__).parents[2]
EXPERIMENT = {
    "env": {"id": "rise/Maze-v0", "size": 5, "max_steps": 30},
    "seed": 7,
    "stop": {"env_steps": 1024},
    "rllib": {"num_env_runners": 0, "train_batch_size_per_learner": 128, "minibatch_size": 64},
    "intrinsic": {"method": "rise", "lambda_0": 0.1, "k": 3},
}


def written(folder: Path, **search: Any) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, "search": search}))
    return path


@pytest.mark.parametrize("path", sorted((ROOT / "tune_experiments").glob("*.yaml")), ids=str)
def test_our_sweeps_are_valid(path: Path):
    assert load_sweep(path).search.num_trials() >= 3


def test_every_kind_of_range(tmp_path: Path):
    space = {
        "alpha": {"grid": [0.1, 0.5]},
        "lambda_0": {"log_uniform": [0.001, 0.1]},
        "k": {"integers": [1, 15]},
        "rllib.lr": {"choice": [0.001, 0.0003]},
        "kappa": {"uniform": [0, 0.0001]},
        "zeta": {"quantized": [0, 0.1, 0.02]},
    }
    domains = _param_space(load_sweep(written(tmp_path, space=space, seeds=2, samples=3)))
    assert domains["intrinsic.alpha"] == {"grid_search": [0.1, 0.5]}
    assert domains["seed"] == {"grid_search": [7, 8]}
    assert domains["rllib.lr"].categories == [0.001, 0.0003]
    drawn = {path: {d.sample() for _ in range(300)} for path, d in domains.items() if path in (
        "intrinsic.k", "intrinsic.zeta", "intrinsic.lambda_0", "intrinsic.kappa"
    )}  # fmt: skip
    assert drawn["intrinsic.k"] == set(range(1, 16))
    assert {round(value / 0.02, 6) % 1 for value in drawn["intrinsic.zeta"]} == {0}
    lambdas = sorted(drawn["intrinsic.lambda_0"])
    assert 0.001 <= lambdas[0] < lambdas[-1] <= 0.1
    # As many below the geometric middle as above it.
    assert 100 < sum(value < 0.01 for value in lambdas) < 200
    assert 0 <= min(drawn["intrinsic.kappa"]) < max(drawn["intrinsic.kappa"]) <= 0.0001


def test_a_trial_is_the_experiment_with_its_values_and_seed(tmp_path: Path):
    sweep = load_sweep(written(tmp_path, space={"alpha": {"grid": [0.1, 0.5]}}))
    data = sweep.as_data()
    chosen = {"intrinsic.alpha": 0.5, "rllib.lr": 0.01, "seed": 9}
    trial = trial_experiment(data, chosen)
    assert (trial.intrinsic["alpha"], trial.rllib["lr"], trial.seed) == (0.5, 0.01, 9)
    assert trial.intrinsic["lambda_0"] == 0.1
    assert trial_experiment(data, {"intrinsic.alpha": 0.5, "__trial_index__": 2}).seed == 9


def test_a_sweep_over_methods_begins_each_with_its_defaults(tmp_path: Path):
    sweep = load_sweep(written(tmp_path, space={"method": {"grid": ["rise", "re3"]}}))
    assert sweep.with_values({"intrinsic.method": "re3"}, 0).method == "re3"


def test_a_sweep_is_no_experiment_and_an_experiment_no_sweep(tmp_path: Path):
    path = written(tmp_path, space={"alpha": {"grid": [0.1]}})
    with pytest.raises(ConfigError, match="is a sweep: `rise tune"):
        load_experiment(path)
    path.write_text(yaml.safe_dump(EXPERIMENT))
    with pytest.raises(ConfigError, match=r"has no search: .* `rise train"):
        load_sweep(path)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({}, "search.space is missing in a search: Paths as for --set"),
        ({"space": {"alpha": {"grid": []}}}, "name each value once, and at least one"),
        ({"space": {"alpha": {"grid": [0.1, 0.1]}}}, "name each value once"),
        ({"space": {"alpha": {"gird": [0.1]}}}, "give one of grid, choice"),
        ({"space": {"alpha": {"grid": [0.1], "choice": [0.2]}}}, "give one of grid"),
        ({"space": {"alpha": {"uniform": [0.5, 0.1]}}}, "the first must be below the second"),
        ({"space": {"alpha": {"uniform": [0.5]}}}, "give 2 numbers"),
        ({"space": {"alpha": {"uniform": [0.1, float("inf")]}}}, "give 2 numbers"),
        ({"space": {"lambda_0": {"log_uniform": [0, 1]}}}, "a logarithm needs numbers above 0"),
        ({"space": {"k": {"integers": [1, 4.5]}}}, "give whole numbers"),
        ({"space": {"zeta": {"quantized": [0, 0.1, 0.2]}}}, "the step must fit"),
        ({"space": {"alpha": {"grid": [0.1, 1.5]}}}, r"alpha, 1.5: .*box-cox"),
        ({"space": {"k": {"integers": [1, 200]}}}, r"k, 200: .*k=200 is not below the 128"),
        ({"space": {"alpah": {"grid": [0.1]}}}, "did you mean 'alpha'"),
        ({"space": {"seed": {"grid": [1]}}}, "seeds are a dimension of every sweep"),
        (
            {"space": {"alpha": {"grid": [0.1]}, "intrinsic.alpha": {"grid": [0.2]}}},
            "each may stand there once",
        ),
        ({"space": {"alpha": {"grid": [0.1]}}, "samples": 3}, "a grid is run once"),
        ({"space": {"alpha": {"grid": [0.1]}}, "seed": 3}, "did you mean 'seeds'"),
        ({"space": {"alpha": {"grid": [0.1]}}, "searcher": "optuna"}, "write choice for grid"),
        ({"space": {"k": {"choice": [3, 5]}}, "samples": 4, "scheduler": "pbt"}, "cannot change"),
        ({"space": {"lambda_0": {"grid": [0.1]}}, "scheduler": "pbt"}, "4 at least"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(tmp_path: Path, search: dict, words: str):
    with pytest.raises(ConfigError, match=words):
        load_sweep(written(tmp_path, **search))
