"""What a run asks of Ray."""

from __future__ import annotations

import pytest
from test_algorithms import experiment

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.resources import lacking, needed_cpus
from rllib_rise.experiments.schema import build_config, parse_experiment

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.mark.parametrize(
    ("name", "rllib", "cpus"),
    [
        ("DQN", {}, 1),
        ("PPO", {"num_env_runners": 3, "num_learners": 2}, 6),
        ("PPO", {"num_env_runners": 3, "num_cpus_per_env_runner": 0.5}, 3),
        ("IMPALA", {"num_learners": 2, "num_aggregator_actors_per_learner": 2}, 7),
    ],
)
def test_cpus_are_counted(name: str, rllib: dict, cpus: int):
    assert needed_cpus(experiment(name, **rllib)) == cpus


def test_rllibs_defaults_count_too():
    bare = parse_experiment({"algorithm": "IMPALA", "env": "CartPole-v1", "stop": {"env_steps": 1}})
    config = build_config(bare)
    assert needed_cpus(bare) == 1 + config.num_env_runners + config.num_learners == 4


def test_what_a_machine_does_not_have_is_an_error_and_on_a_cluster_a_warning():
    asked = experiment("PPO", num_env_runners=2, custom_resources_per_env_runner={"env_node": 0.5})
    with pytest.raises(ConfigError, match="asks for 1 env_node, Ray has 0"):
        lacking(asked, cluster=False)
    (warning,) = lacking(asked, cluster=True)
    assert "it waits until nodes join" in warning


def test_nothing_is_said_of_what_is_there():
    assert lacking(experiment("PPO", num_env_runners=1), cluster=False) == []
