"""Sampling by arrays: the same episodes as RLlib's own env runner, to the last bit."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from connectors_for_tests import Shift
from envs_for_tests import ConstantReward, ContinuousReward, Noise
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.module_to_env import TensorToNumpy
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from small_algorithms import small

from rllib_rise.rllib.env_runner import ArrayEnvRunner
from rllib_rise.rllib.modules import PPOModule

pytestmark = pytest.mark.usefixtures("ray_cluster")

# Fragments that cut episodes of 20 steps anywhere, on two environments.
CALLS = (14, 50, 1, 3, 84, 40)


class Watching(RLlibCallback):
    """Wants to see every step."""

    def on_episode_step(self, **kwargs: Any) -> None:
        """Watch."""


class Fails(ConstantReward):
    """A step in this process fails: the one that `when` says."""

    taken, when, error = 0, 0, RuntimeError

    def step(self, action):
        Fails.taken += 1
        if Fails.taken == Fails.when:
            raise self.error("a step that fails")
        return super().step(action)

    @classmethod
    def begin(cls, when: int, error: type = RuntimeError) -> None:
        Fails.taken, Fails.when, Fails.error = 0, when, error


class ReusedMemory(ConstantReward):
    """Always the same array, with other numbers in it."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    shown = np.zeros(3)

    def _observe(self):
        self.shown[:] = self.position
        return self.shown


class NotFinite(ConstantReward):
    """Shows what policies must not act on, also where it has opposite signs."""

    shown = ((np.inf, -np.inf, 0.0), (0.0, np.nan, 1.0))

    def _observe(self):
        if self.steps % 5 < len(self.shown):
            return np.array(self.shown[self.steps % 5], np.float32)
        return super()._observe()


class FarBounds(ContinuousReward):
    """Actions between 5 and 9, and ends by truncation."""

    action_space = gym.spaces.Box(5, 9, (2,), np.float32)

    def step(self, action):
        assert self.action_space.contains(action)
        obs, _, ended, _, info = super().step(action)
        return obs, float(action.sum()), False, ended, info


class Talkative(PPOModule):
    """Says something nested about its actions."""

    def _forward_exploration(self, batch, **kwargs):
        outputs = super()._forward_exploration(batch, **kwargs)
        return {**outputs, "more": {"mean": outputs["action_dist_inputs"].mean(1)}}


def make(cls: type[SingleAgentEnvRunner], config: Any) -> SingleAgentEnvRunner:
    torch.manual_seed(0)
    config.validate()
    return cls(config=config, worker_index=0)


def sampled(runner: SingleAgentEnvRunner, explore: bool = True) -> list[list[Any]]:
    torch.manual_seed(1)
    return [runner.sample(num_timesteps=number, explore=explore) for number in CALLS]


def assert_equal(one: Any, other: Any) -> None:
    """All that an episode holds, but for its name and the time that it took."""
    names = ("t", "t_started", "is_numpy", "is_terminated", "is_truncated", "custom_data")
    for name in names:
        assert getattr(one, name) == getattr(other, name), name
    assert (one.get_duration_s() > 0) == (other.get_duration_s() > 0)
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
        ("PPO", FarBounds),
        ("PPO", ReusedMemory),
        ("PPO", NotFinite),
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

    theirs, ours = make(SingleAgentEnvRunner, config()), make(ArrayEnvRunner, config())
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
    theirs, ours = make(SingleAgentEnvRunner, small("PPO")), make(ArrayEnvRunner, small("PPO"))
    expected = sampled(theirs)
    torch.manual_seed(1)
    for turn, (number, episodes) in enumerate(zip(CALLS, expected, strict=True)):
        ours._plain = turn % 2 == 0
        found = ours.sample(num_timesteps=number, explore=True)
        for one, other in zip(episodes, found, strict=True):
            assert_equal(one, other)


def test_what_wants_single_steps_gets_them():
    def taken(config: Any) -> bool:
        return make(ArrayEnvRunner, config)._plain

    assert taken(small("PPO"))
    assert not taken(small("PPO").callbacks(Watching))
    assert not taken(small("PPO").callbacks(on_episode_end=lambda **kwargs: None))
    shift = small("PPO").env_runners(env_to_module_connector=lambda *args: Shift())
    assert not taken(shift)
    stock = small("PPO").env_runners(module_to_env_connector=lambda *args: TensorToNumpy())
    assert not taken(stock)
    lstm = {"fcnet_hiddens": [16], "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 6}
    assert not taken(small("PPO").rl_module(model_config=lstm))
    assert not taken(small("PPO").env_runners(episode_lookback_horizon=4))


def test_a_failed_step_begins_all_environments_anew():
    found = []
    for cls in (SingleAgentEnvRunner, ArrayEnvRunner):
        Fails.begin(when=45)  # behind the end of the first episodes
        config = small("PPO", Fails).fault_tolerance(restart_failed_sub_environments=True)
        runner = make(cls, config)
        torch.manual_seed(1)
        found.append(runner.sample(num_timesteps=60, explore=True))
    for one, other in zip(*found, strict=True):
        assert_equal(one, other)
    assert sum(len(episode) for episode in found[1]) > 60


def test_after_an_interruption_all_begins_anew():
    Fails.begin(when=9, error=KeyboardInterrupt)
    runner = make(ArrayEnvRunner, small("PPO", Fails))
    with pytest.raises(KeyboardInterrupt):
        runner.sample(num_timesteps=60, explore=True)
    episodes = runner.sample(num_timesteps=60, explore=True)
    for episode in episodes:
        if episode.t_started == 0:
            assert episode.get_observations(0).tolist() == [0, 0, 0]
    assert sum(len(episode) for episode in episodes) == 60


def test_nothing_asked_for_is_nothing_sampled():
    runner = make(ArrayEnvRunner, small("PPO"))
    assert runner.sample(num_timesteps=0, explore=True) == []


def test_a_module_that_says_more_is_sampled_by_rllib():
    spec = RLModuleSpec(module_class=Talkative)
    runner = make(ArrayEnvRunner, small("PPO").rl_module(rl_module_spec=spec))
    episodes = runner.sample(num_timesteps=60, explore=True)
    assert not runner._plain
    assert sum(len(episode) for episode in episodes) == 60
    assert episodes[0].get_extra_model_outputs("more")["mean"].shape == (20,)


def test_after_random_actions_outputs_belong_to_their_steps():
    found = []
    for cls in (SingleAgentEnvRunner, ArrayEnvRunner):
        runner = make(cls, small("PPO"))
        runner.env.action_space.seed(0)
        runner.sample(num_timesteps=10, explore=True, random_actions=True)
        # RLlib computes the module's input at the end of what was sampled, whoever acted.
        torch.manual_seed(1)
        found.append(runner.sample(num_timesteps=6, explore=True))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(
            one.get_extra_model_outputs("action_dist_inputs"),
            other.get_extra_model_outputs("action_dist_inputs"),
        )


def test_episodes_given_away_may_be_written_to():
    runner = make(ArrayEnvRunner, small("PPO"))
    first = runner.sample(num_timesteps=10, explore=True)[0]
    true = first.get_observations(-1).copy()
    first.observations.data[:] = 99
    following = runner.sample(num_timesteps=10, explore=True)[0]
    np.testing.assert_array_equal(following.get_observations(0), true)


def test_our_configs_use_it_and_a_users_own_stays():
    config = small("PPO")
    config.validate()
    assert config.env_runner_cls is ArrayEnvRunner
    config = small("PPO").env_runners(env_runner_cls=SingleAgentEnvRunner)
    config.validate()
    assert config.env_runner_cls is SingleAgentEnvRunner


def test_where_another_env_runner_is_needed_rllib_chooses(tmp_path):
    config = small("PPO").offline_data(output=str(tmp_path))
    config.env_runners(batch_mode="complete_episodes")
    config.validate()
    assert config.env_runner_cls is None  # one of RLlib's that writes
    config = small("PPO")
    config.validate()
    config.multi_agent(policies={"one"}, policy_mapping_fn=lambda *args, **kwargs: "one")
    config.validate()
    assert config.env_runner_cls is None
