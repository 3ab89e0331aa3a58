"""DQN and SAC: particles are the replayed batch, and the buffer is only read."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from keeping import LEARNERS, take
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from small_algorithms import OFF_POLICY, small

from rllib_rise.bonuses.rise import RISE
from rllib_rise.errors import ConfigError
from rllib_rise.rllib.runtime import IntrinsicRuntime

pytestmark = pytest.mark.usefixtures("ray_cluster")

GAMMA = 0.9


def stored_rewards(algorithm) -> np.ndarray:
    buffer = algorithm.local_replay_buffer
    return np.concatenate([episode.get_rewards() for episode in buffer.episodes])


@pytest.mark.parametrize("name", OFF_POLICY)
def test_the_replay_buffer_is_never_written_to(build, name: str):
    algorithm = build(small(name).rise(lambda_0=10.0))
    for _ in range(10):
        result = algorithm.train()
    assert result["learners"][DEFAULT_MODULE_ID]["intrinsic_reward_max"] > 0
    rewards = stored_rewards(algorithm)
    assert len(rewards) > 100
    assert set(rewards) == {1.0}


def test_rewards_are_the_neighbours_distances_within_the_replayed_batch(build):
    from sklearn.neighbors import NearestNeighbors

    config = small("DQN").rise(alpha=0.0, lambda_0=0.5, k=3)
    algorithm = build(config.learners(learner_class=LEARNERS["DQN"]))
    while "kept" not in algorithm.learner_group._learner.__dict__:
        algorithm.train()
    obs, rewards = take(algorithm)
    assert len(obs) == 64
    particles = obs.double().numpy()
    distances = NearestNeighbors(n_neighbors=4).fit(particles).kneighbors(particles)[0][:, -1]
    np.testing.assert_allclose(rewards, 1 + 0.5 * distances, rtol=1e-4, atol=1e-5)


def test_replayed_transitions_get_todays_novelty(build):
    """The same transitions among others: the bonus follows the batch, not the buffer's past."""
    algorithm = build(small("DQN").rise(k=3, lambda_0=1.0))
    runtime = algorithm.learner_group._learner.intrinsic
    module = algorithm.learner_group._learner.module[DEFAULT_MODULE_ID]
    same, far = torch.randn(4, 3), 100 + torch.randn(60, 3)
    near = torch.randn(60, 3)
    seen = []
    for others in (far, near):
        batch = {Columns.OBS: torch.cat([same, others]), Columns.REWARDS: torch.zeros(64)}
        runtime.apply(DEFAULT_MODULE_ID, batch, module, None)
        seen.append(batch[Columns.REWARDS][:4].mean())
    assert seen[0] > seen[1]


def test_prioritised_replay_gets_errors_of_the_total_reward(build):
    config = small("DQN").training(
        replay_buffer_config={
            "type": "PrioritizedEpisodeReplayBuffer",
            "capacity": 2000,
            "alpha": 1.0,
            "beta": 0.4,
        }
    )
    largest = []
    for lambda_0 in (0.0, 100.0):
        algorithm = build(copy.deepcopy(config).rise(lambda_0=lambda_0, k=5))
        for _ in range(8):
            algorithm.train()
        largest.append(algorithm.local_replay_buffer._max_priority)
    assert largest[1] > 10 * largest[0]


@pytest.mark.parametrize("name", OFF_POLICY)
def test_k_must_be_below_the_batch(name: str):
    with pytest.raises(ConfigError, match="k=64 is not below the 64 transitions per batch"):
        small(name).rise(k=64).validate()


@pytest.mark.parametrize("n_step", [3, (1, 5)])
def test_n_step_returns_want_to_be_asked_for(n_step):
    config = small("DQN").training(n_step=n_step).env_runners(rollout_fragment_length="auto")
    with pytest.raises(ConfigError, match="n_step_scaling"):
        config.validate()
    config.rise(n_step_scaling=True).validate()


@pytest.mark.parametrize("n_step", [1, (1, 1)])
def test_one_step_is_exact_and_needs_no_leave(n_step):
    config = small("DQN").env_runners(rollout_fragment_length="auto")
    config.training(n_step=n_step).validate()


def test_a_bonus_of_the_next_state_has_none_in_n_steps():
    config = small("DQN").training(n_step=3).intrinsic(method="rnd", n_step_scaling=True)
    with pytest.raises(ConfigError, match="needs the next observation"):
        config.validate()


@pytest.mark.parametrize("gamma", [GAMMA, 1.0])
def test_n_steps_get_the_first_ones_bonus_each(gamma: float):
    settings = RISE.Settings(k=2, lambda_0=1.0, n_step_scaling=True)
    steps = torch.tensor([1.0, 3.0, 2.0, 3.0, 1.0])
    obs = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    rewards = {}
    for given in (None, steps):
        runtime = IntrinsicRuntime(RISE, settings, gamma=lambda module_id: gamma)
        runtime.add_module("m", gym.spaces.Box(-1, 1, (2,), np.float32))
        batch = {Columns.OBS: obs, Columns.REWARDS: torch.zeros(5)}
        if given is not None:
            batch["n_step"] = given
        runtime.apply("m", batch, None, None)
        rewards[given is None] = batch[Columns.REWARDS]
    discounted = torch.tensor([sum(gamma**i for i in range(int(n))) for n in steps])
    torch.testing.assert_close(rewards[False], rewards[True] * discounted)


def test_n_steps_in_training_are_scaled_by_the_batchs_own(build):
    """With a bonus of nothing but its scale, a three-step reward is three discounted times it."""

    config = small("DQN").training(n_step=3, gamma=GAMMA)
    config.intrinsic(method="constant_bonus:One", lambda_0=1.0, n_step_scaling=True)
    algorithm = build(config.learners(learner_class=LEARNERS["DQN"]))
    while "kept" not in algorithm.learner_group._learner.__dict__:
        algorithm.train()
    _, rewards = take(algorithm)
    # The extrinsic reward is 1 per step, so that a row of n steps has twice the discounted sum.
    possible = torch.tensor([2 * sum(GAMMA**i for i in range(n)) for n in (1, 2, 3)])
    gaps = (rewards[:, None] - possible).abs().min(1).values
    assert gaps.max() < 1e-5
    assert (rewards - possible[2]).abs().min() < 1e-5
