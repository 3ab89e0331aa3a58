"""Sampling by arrays: the same episodes as RLlib's own env runner, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from connectors_for_tests import Shift
from envs_for_tests import ConstantReward, ContinuousReward, Noise
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from small_algorithms import small

from rllib_rise.rllib.env_runner import VectorEnvRunner

pytestmark = pytest.mark.usefixtures("ray_cluster")

# Fragments that cut episodes of 20 steps anywhere, on two environments.
CALLS = (14, 50, 1, 3, 84, 40)


class Watching(RLlibCallback):
    """Wants to see every step."""

    def on_episode_step(self, **kwargs: Any) -> None:
        """Watch."""


class FailsOnce(ConstantReward):
    """The tenth step in this process fails."""

    taken = 0

    def step(self, action):
        FailsOnce.taken += 1
        if FailsOnce.taken == 10:
            raise RuntimeError("a step that fails")
        return super().step(action)


def make(cls: type[SingleAgentEnvRunner], config: Any) -> SingleAgentEnvRunner:
    torch.manual_seed(0)
    config.validate()
    return cls(config=config, worker_index=0)


def sampled(runner: SingleAgentEnvRunner, explore: bool = True) -> list[list[Any]]:
    torch.manual_seed(1)
    return [runner.sample(num_timesteps=number, explore=explore) for number in CALLS]


def assert_equal(one: Any, other: Any) -> None:
    """All that an episode holds, but for its name and the time that it took."""
    for name in ("t", "t_started", "is_numpy", "is_done", "custom_data"):
        assert getattr(one, name) == getattr(other, name), name
    assert bool(one.is_terminated) == bool(other.is_terminated)
    assert one.extra_model_outputs.keys() == other.extra_model_outputs.keys()
    buffers = [(one.infos, other.infos)]
    for name in ("observations", "actions", "rewards"):
        buffers.append((getattr(one, name), getattr(other, name)))
    for name, buffer in one.extra_model_outputs.items():
        buffers.append((buffer, other.extra_model_outputs[name]))
    for buffer, twin in buffers:
        assert buffer.lookback == twin.lookback
        assert buffer.finalized == twin.finalized
        assert buffer.space == twin.space
        assert len(buffer.data) == len(twin.data)
        assert type(buffer.data) is type(twin.data)
        if buffer.finalized:
            assert buffer.data.dtype == twin.data.dtype
            np.testing.assert_array_equal(buffer.data, twin.data)
        else:
            assert buffer.data == twin.data


@pytest.mark.parametrize("explore", [True, False])
@pytest.mark.parametrize(
    ("algorithm", "env"),
    [
        ("PPO", ConstantReward),
        ("PPO", ContinuousReward),
        ("PPO", Noise),
        ("DQN", ConstantReward),
        ("SAC", ContinuousReward),
        ("IMPALA", ConstantReward),
    ],
)
def test_episodes_are_those_of_rllib(algorithm: str, env: type, explore: bool):
    def config() -> Any:
        made = small(algorithm, env)
        if env is Noise:
            filters = {"conv_filters": [[4, 3, 2], [4, 3, 2]], "fcnet_hiddens": [16]}
            made.rl_module(model_config=filters)
        return made

    theirs, ours = make(SingleAgentEnvRunner, config()), make(VectorEnvRunner, config())
    assert ours._plain
    names: dict[str, str] = {}
    for expected, found in zip(sampled(theirs, explore), sampled(ours, explore), strict=True):
        for one, other in zip(expected, found, strict=True):
            assert names.setdefault(one.id_, other.id_) == other.id_
            assert_equal(one, other)
    told, tells = theirs.get_metrics(), ours.get_metrics()
    for name in ("episode_return_mean", "episode_len_mean", "num_env_steps_sampled_lifetime"):
        assert tells[name].peek() == told[name].peek(), name


def test_both_ways_can_take_turns():
    theirs, ours = make(SingleAgentEnvRunner, small("PPO")), make(VectorEnvRunner, small("PPO"))
    expected = sampled(theirs)
    torch.manual_seed(1)
    for turn, (number, episodes) in enumerate(zip(CALLS, expected, strict=True)):
        ours._plain = turn % 2 == 0
        found = ours.sample(num_timesteps=number, explore=True)
        for one, other in zip(episodes, found, strict=True):
            assert_equal(one, other)


def test_what_wants_single_steps_gets_them():
    def taken(config: Any) -> bool:
        return make(VectorEnvRunner, config)._plain

    assert taken(small("PPO"))
    assert not taken(small("PPO").callbacks(Watching))
    assert not taken(small("PPO").callbacks(on_episode_end=lambda **kwargs: None))
    shift = small("PPO").env_runners(env_to_module_connector=lambda *args: Shift())
    assert not taken(shift)
    lstm = {"fcnet_hiddens": [16], "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 6}
    assert not taken(small("PPO").rl_module(model_config=lstm))
    assert not taken(small("PPO").env_runners(episode_lookback_horizon=4))


def test_a_failed_step_begins_all_environments_anew():
    FailsOnce.taken = 0
    config = small("PPO", FailsOnce).fault_tolerance(restart_failed_sub_environments=True)
    runner = make(VectorEnvRunner, config)
    episodes = runner.sample(num_timesteps=60, explore=True)
    assert sum(len(episode) for episode in episodes) == 60
    assert all(episode.t_started == 0 for episode in episodes)


def test_our_configs_use_it_and_a_users_own_stays():
    config = small("PPO")
    config.validate()
    assert config.env_runner_cls is VectorEnvRunner
    config = small("PPO").env_runners(env_runner_cls=SingleAgentEnvRunner)
    config.validate()
    assert config.env_runner_cls is SingleAgentEnvRunner
