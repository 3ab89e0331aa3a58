"""Sweep files: what they mean, and what they must not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rllib_rise.errors import ConfigError, RunDirectoryError
from rllib_rise.experiments.resources import needed_cpus
from rllib_rise.experiments.schema import load_experiment
from rllib_rise.experiments.sweep.run import _open, _param_space
from rllib_rise.experiments.sweep.schema import load_sweep
from rllib_rise.experiments.sweep.space import parse_dimension
from rllib_rise.experiments.sweep.trial import largest_trial, trial_experiment

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


@pytest.mark.parametrize("path", sorted((ROOT / "tune_experiments").rglob("*.yaml")), ids=str)
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


def test_a_sweep_over_methods_begins_each_with_the_settings_that_it_has_here(tmp_path: Path):
    space = {"lambda_0": {"grid": [0.3, 0.5]}, "method": {"grid": ["rise", "re3"]}}
    path = tmp_path / "sweep.yaml"
    methods = {"re3": {"kappa": 0.01}}
    path.write_text(yaml.safe_dump({**EXPERIMENT, "methods": methods, "search": {"space": space}}))
    values = {"intrinsic.lambda_0": 0.3, "intrinsic.method": "re3"}
    trial = load_sweep(path).with_values(values, 0)
    assert (trial.method, trial.intrinsic["kappa"], trial.methods) == ("re3", 0.01, {})
    assert trial.intrinsic["lambda_0"] == 0.3


def test_numbers_with_an_exponent_are_numbers(tmp_path: Path):
    path = tmp_path / "sweep.yaml"
    lines = "search: {space: {kappa: {grid: [1e-5, 3e-5]}, rllib.lr: {log_uniform: [1e-4, 1e-2]}}}"
    path.write_text(yaml.safe_dump(EXPERIMENT) + lines)
    kappa, lr = load_sweep(path).search.dimensions()
    assert (kappa.values, lr.values) == ((1e-5, 3e-5), (1e-4, 1e-2))


def test_whole_steps_give_whole_numbers(tmp_path: Path):
    space = {"k": {"quantized": [2, 8, 2]}, "lambda_0": {"quantized": [0.2, 0.6, 0.2]}}
    domains = _param_space(load_sweep(written(tmp_path, space=space)))
    drawn = [domains["intrinsic.k"].sample() for _ in range(100)]
    assert set(drawn) == {2, 4, 6, 8}
    assert {type(value) for value in drawn} == {int}
    drawn = {round(domains["intrinsic.lambda_0"].sample(), 9) for _ in range(100)}
    assert drawn == {0.2, 0.4, 0.6}


def test_a_sweep_is_no_experiment_and_an_experiment_no_sweep(tmp_path: Path):
    path = written(tmp_path, space={"alpha": {"grid": [0.1]}})
    with pytest.raises(ConfigError, match="is a sweep: `rise tune"):
        load_experiment(path)
    path.write_text(yaml.safe_dump(EXPERIMENT))
    with pytest.raises(ConfigError, match=r"has no search: .* `rise train"):
        load_sweep(path)


@pytest.mark.parametrize(
    ("given", "value", "nearest"),
    [
        ({"uniform": [0.85, 0.95]}, 1.02, 0.95),
        ({"uniform": [0.85, 0.95]}, 0.9, 0.9),
        ({"log_uniform": [0.001, 0.1]}, 0.0008, 0.001),
        ({"quantized": [0, 0.1, 0.02]}, 0.048, 0.04),
        ({"integers": [1, 15]}, 16, 15),
        ({"grid": [0.1, 0.5]}, 0.5, 0.5),
    ],
)
def test_values_can_be_brought_back_into_their_range(given: dict, value: float, nearest: float):
    found = parse_dimension("alpha", given).within(value)
    assert found == pytest.approx(nearest)
    assert isinstance(found, type(value))


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({}, "search.space is missing in a search: Paths as for --set"),
        ({"space": {}}, r"search.space=\{\}: name what is varied, e.g. search: \{space"),
        ({"space": ["alpha"]}, r"search.space=\['alpha'\]: name what is varied"),
        ({"space": {"alpha": [0.1, 0.5]}}, r"alpha=\[0.1, 0.5\]: say how it is varied"),
        ({"space": {"alpha": {"grid": 0.1}}}, r"alpha.grid=0.1: give a list"),
        ({"space": {"alpha": {"grid": [[0.1]]}}}, r"alpha \[0.1\]: .*a valid number"),
        ({"space": {"alpha": {"grid": [0.5, 1.0]}}}, "alpha 1: alpha=1.0 with form='paper'"),
        ({"space": {"alpha": {"uniform": [0, 1]}}}, "alpha 1: alpha=1.0 with form='paper'"),
        (
            {"space": {"alpha": {"grid": [0, 1]}, "form": {"grid": ["box-cox", "paper"]}}},
            "alpha 1, form paper: alpha=1.0 with form='paper'",
        ),
        ({"space": {"alpha": {"grid": [0.1]}}, "seeds": 0}, "search.seeds=0: .*equal to 1"),
        ({"space": {"k": {"uniform": [1, 15]}}}, r"k 6.35: intrinsic.k=6.348 must be an integer"),
        ({"space": {"rllib.lrr": {"grid": [0.1]}}}, "rllib.lrr is not a setting .*'lr'"),
        ({"space": {"lr": {"grid": [0.1]}}}, "search.space.lr is a setting of RLlib: .*rllib.lr"),
        ({"space": {"env.sise": {"grid": [5]}}}, "env.sise is not an argument .*'size'"),
        ({"space": {"stop.env_steps": {"grid": [99]}}}, "a sweep has one budget"),
        ({"space": {"rllib.minibatch_size": {"grid": [64, 256]}}}, r"must be <= .*\.$"),
        ({"space": {"zeta": {"quantized": [0, 1, 0]}}}, "the step must be above 0"),
        ({"space": {"zeta": {"quantized": [0, 1]}}}, "give 3 numbers, low, high and step"),
        ({"space": {"zeta": {"quantized": [0.05, 0.1, 0.02]}}}, "0.05 is none of 0.02"),
        ({"space": {"alpha": {"grid": []}}}, "name each value once, and at least one"),
        ({"space": {"alpha": {"grid": [0.1, 0.1]}}}, "name each value once"),
        ({"space": {"alpha": {"grid": [0, 0.0]}}}, "name each value once"),
        ({"space": {"k": {"grid": [3, "auto"]}}}, "k auto: Phase 1 takes 10,000 steps"),
        ({"space": {"alpha": {"gird": [0.1]}}}, "alpha.gird: give one of .* mean 'grid'"),
        ({"space": {"alpha": {"grid": [0.1], "choice": [0.2]}}}, "with one of grid, choice"),
        ({"space": {"alpha": {"uniform": [0.5, 0.1]}}}, "the first must be below the second"),
        ({"space": {"alpha": {"uniform": [0.5]}}}, "give 2 numbers"),
        ({"space": {"alpha": {"uniform": [0.1, float("inf")]}}}, "give 2 numbers"),
        ({"space": {"lambda_0": {"log_uniform": [0, 1]}}}, "a logarithm needs numbers above 0"),
        ({"space": {"k": {"integers": [1, 4.5]}}}, "give whole numbers"),
        ({"space": {"zeta": {"quantized": [0, 0.1, 0.2]}}}, "fit between the ends"),
        ({"space": {"alpha": {"grid": [0.1, 1.5]}}}, r"alpha 1.5: .*box-cox"),
        ({"space": {"k": {"integers": [1, 200]}}}, r"k 200: .*k=200 is not below the 128"),
        ({"space": {"alpah": {"grid": [0.1]}}}, "did you mean 'alpha'"),
        ({"space": {"seed": {"grid": [1]}}}, "seeds are a dimension of every sweep"),
        (
            {"space": {"alpha": {"grid": [0.1]}, "intrinsic.alpha": {"grid": [0.2]}}},
            "each may stand there once",
        ),
        ({"space": {"alpha": {"grid": [0.1]}}, "samples": 3}, "a grid is run once"),
        ({"space": {"alpha": {"grid": [0.1]}}, "seed": 3}, "did you mean 'seeds'"),
        ({"space": {"alpha": {"grid": [0.1]}}, "searcher": "optuna"}, "write choice for grid"),
        ({"space": {"k": {"choice": [3, 5]}}, "samples": 4, "scheduler": "pbt"}, "cannot change k"),
        (
            {"space": {"rllib.lr": {"choice": [1, 2]}}, "samples": 4, "scheduler": "pbt"},
            "cannot change rllib.lr while a run goes on, only lambda_0, kappa, zeta, alpha",
        ),
        (
            {"space": {"lambda_0": {"uniform": [0, 1]}}, "searcher": "optuna", "scheduler": "pbt"},
            "pbt proposes settings",
        ),
        ({"space": {"lambda_0": {"grid": [0.1]}}, "scheduler": "pbt"}, "4 at least"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(tmp_path: Path, search: dict, words: str):
    with pytest.raises(ConfigError, match=words) as refused:
        load_sweep(written(tmp_path, **search))
    assert str(refused.value).startswith(f"{tmp_path / 'sweep.yaml'}: ")


@pytest.mark.parametrize("given", [None, [], "alpha"])
def test_a_search_that_says_nothing_is_refused(tmp_path: Path, given: Any):
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, "search": given}))
    with pytest.raises(ConfigError, match="say what is varied"):
        load_sweep(path)


def test_a_sweep_has_one_budget(tmp_path: Path):
    path = written(tmp_path, space={"alpha": {"grid": [0.1]}})
    with pytest.raises(ConfigError, match=r"stop.episode_return would give the better setting"):
        load_sweep(path, ["stop.episode_return=1"])


def test_the_largest_trial_decides_how_many_cpus_are_needed(tmp_path: Path):
    space = {"rllib.num_env_runners": {"grid": [0, 2]}, "alpha": {"grid": [0.1, 0.5]}}
    sweep = load_sweep(written(tmp_path, space=space))
    assert needed_cpus(largest_trial(sweep)) == 3
    halves = [f"rllib.num_cpus_{of}=0.5" for of in ("per_env_runner", "per_learner")]
    packed = load_sweep(tmp_path / "sweep.yaml", [*halves, "rllib.num_cpus_for_main_process=0.5"])
    assert needed_cpus(largest_trial(packed)) == 2


@pytest.mark.parametrize(("asked", "words"), [(3, "was begun with 2"), (2, None), (None, None)])
def test_a_sweep_goes_on_with_as_many_trials_at_a_time_as_it_was_begun_with(
    tmp_path: Path, asked: int | None, words: str | None
):
    sweep, out = load_sweep(written(tmp_path, space={"alpha": {"grid": [0.1]}})), tmp_path / "out"
    assert not _open(sweep, out, resume=False, max_concurrent=2)
    with pytest.raises(RunDirectoryError, match="go on with --resume"):
        _open(sweep, out, resume=False, max_concurrent=2)
    if words is None:
        assert _open(sweep, out, resume=True, max_concurrent=asked)
        return
    with pytest.raises(RunDirectoryError, match=words):
        _open(sweep, out, resume=True, max_concurrent=asked)
