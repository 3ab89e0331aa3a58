from __future__ import annotations

from pathlib import Path

import envs_for_tests  # noqa: F401 (registers the environment)
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

from rllib_rise.errors import RunDirectoryError
from rllib_rise.experiments.evaluate import evaluate, find_checkpoint, policy_config
from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.experiments.schema import build_config, parse_experiment


def save_policy_that_takes(
    action: int, path: Path, env: str = "tests/ActionReward-v0"
) -> RunDirectory:
    experiment = parse_experiment(
        {
            "env": env,
            "stop": {"env_steps": 100},
            "intrinsic": {"method": "rise", "k": 3},
            "rllib": {
                "num_env_runners": 0,
                "train_batch_size_per_learner": 128,
                "minibatch_size": 64,
            },
        }
    )
    algorithm = build_config(experiment).build_algo()
    module = algorithm.learner_group._learner.module[DEFAULT_MODULE_ID]
    with torch.no_grad():
        last = list(module.pi.parameters())[-1]
        last.zero_()
        last[action] = 50.0
    run = RunDirectory(path)
    run.open(experiment.resolved())
    run.add_checkpoint(
        1,
        lambda folder: algorithm.save_to_path(str(folder / "algorithm")),
        env_steps=128,
        keep=1,
    )
    algorithm.stop()
    return run


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("action", [1, 2])
def test_it_is_the_checkpoints_policy_that_is_evaluated(tmp_path: Path, action: int):
    run = save_policy_that_takes(action, tmp_path / "run")
    result = evaluate(run.path, episodes=3)
    assert result["return_mean"] == result["return_min"] == result["return_max"] == 10 * action
    assert result["length_mean"] == 10


def test_a_run_without_checkpoints_is_named(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    run.open({})
    with pytest.raises(RunDirectoryError, match="no checkpoint yet"):
        find_checkpoint(run.path)


def test_a_run_of_several_learners_fits_into_one_process(tmp_path: Path):
    settings = {
        "num_learners": 2,
        "train_batch_size_per_learner": 64,
        "minibatch_size": 64,
        "rollout_fragment_length": 64,
        "num_env_runners": 0,
        "num_envs_per_env_runner": 2,
    }
    data = {"env": "rise/Maze-v0", "stop": {"env_steps": 100}, "rllib": settings}
    run = RunDirectory(tmp_path / "run")
    run.open(parse_experiment(data).resolved())
    config = policy_config(run)
    config.validate()
    assert (config.num_learners, config.total_train_batch_size) == (0, 128)
