"""`rise train`, `evaluate` and `compare` with every algorithm, from the data of a YAML file."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_algorithms import ASYNCHRONOUS, NAMES, OFF_POLICY

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.compare import compare
from rllib_rise.experiments.evaluate import evaluate
from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.experiments.run.train import train
from rllib_rise.experiments.schema import build_config, parse_experiment

pytestmark = pytest.mark.usefixtures("ray_cluster")

FAST = ("DQN", "IMPALA")


def experiment(name: str, *, steps: int = 400, **rllib):
    env = {"id": "rise/Maze-v0", "size": 4, "max_steps": 20}
    if name == "SAC":
        env = {"id": "rise/MountainCarContinuous-v0", "bins": 10}
    settings = {
        "num_env_runners": 0,
        "num_learners": 0,
        "num_envs_per_env_runner": 2,
        "train_batch_size_per_learner": 64,
        "min_time_s_per_iteration": 0,
        "min_sample_timesteps_per_iteration": 100,
        "model_config": {"fcnet_hiddens": [16]},
    }
    if name == "PPO":
        settings |= {"minibatch_size": 64, "num_epochs": 1}
    if name in ASYNCHRONOUS:
        settings |= {"broadcast_interval": 1, "rollout_fragment_length": 16}
    if name in OFF_POLICY:
        settings |= {"num_steps_sampled_before_learning_starts": 64, "rollout_fragment_length": 8}
    return parse_experiment(
        {
            "algorithm": name,
            "env": env,
            "stop": {"env_steps": steps},
            "rllib": {**settings, **rllib},
            "intrinsic": {"method": "rise", "k": 3},
        }
    )


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in NAMES]
)
def test_a_run_is_trained_resumed_and_evaluated(tmp_path: Path, name: str):
    out = tmp_path / "run"
    first = train(experiment(name), out)
    assert first["env_steps"] >= 400
    rows = RunDirectory(out).read_metrics()
    assert max(row.get("intrinsic_reward_mean") or 0 for row in rows) > 0
    further = train(experiment(name, steps=first["env_steps"] + 200), out, resume=True)
    assert further["env_steps"] >= first["env_steps"] + 200
    assert 0 < first["coverage"] <= further["coverage"] <= 1
    if name == "SAC":
        assert evaluate(out, episodes=1)["length_mean"] <= 999
    else:
        assert evaluate(out, episodes=2)["length_mean"] <= 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["IMPALA", "DQN", "SAC"])
def test_methods_are_compared(tmp_path: Path, name: str):
    summary = compare(experiment(name), tmp_path / "out", methods=["none", "rise"], seeds=1)
    assert set(summary["methods"]) == {"none", "rise"}
    assert all("coverage" in values["figures"] for values in summary["methods"].values())


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(ConfigError, match="'PPO', 'APPO', 'IMPALA', 'DQN' or 'SAC'"):
        parse_experiment({"algorithm": "DDPG", "env": "CartPole-v1", "stop": {"env_steps": 1}})


def test_settings_of_another_algorithm_are_refused():
    with pytest.raises(ConfigError, match=r"rllib.clip_param is not a setting of DQN"):
        experiment("DQN", clip_param=0.1)


def test_a_state_function_may_be_named():
    data = experiment("PPO").resolved()
    data["intrinsic"]["state"] = "dict_modules:place"
    from dict_modules import place

    again = parse_experiment(parse_experiment(data).resolved())
    assert build_config(again).intrinsic_method()[1].state is place
    data["intrinsic"]["state"] = "dict_modules:nowhere"
    with pytest.raises(ConfigError, match=r"intrinsic.state='dict_modules:nowhere' cannot"):
        parse_experiment(data)
