"""The mountain cars are Gymnasium's, and count where they have been."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rllib_rise.envs import MOUNTAIN_CAR_IDS
from rllib_rise.envs.mountain_car import MountainCar, MountainCarContinuous
from rllib_rise.errors import ConfigError


@pytest.mark.parametrize("env_id", MOUNTAIN_CAR_IDS)
def test_gymnasium_finds_nothing_wrong(env_id: str):
    env = gym.make(env_id)
    check_env(env.unwrapped, skip_render_check=True)
    assert not np.isinf(env.observation_space.high).any()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(MountainCar, "MountainCar-v0"), (MountainCarContinuous, "MountainCarContinuous-v0")],
)
def test_it_is_gymnasiums_car_with_scaled_observations(ours, theirs: str):
    env, original = ours(), gym.make(theirs)
    low, high = original.observation_space.low, original.observation_space.high
    obs, _ = env.reset(seed=3)
    true, _ = original.reset(seed=3)
    env.action_space.seed(3)
    over, steps = False, 0
    while not over:
        np.testing.assert_allclose((obs + 1) / 2 * (high - low) + low, true, atol=1e-5)
        action = env.action_space.sample()
        obs, reward, ended, cut, _ = env.step(action)
        true, their_reward, their_end, their_cut, _ = original.step(action)
        assert (reward, ended, cut) == (their_reward, their_end, their_cut)
        over, steps = ended or cut, steps + 1
    assert steps == {"MountainCar-v0": 200, "MountainCarContinuous-v0": 999}[theirs] or ended


def test_visits_are_counted_in_their_cells():
    env = MountainCar(bins=4)
    obs, _ = env.reset(seed=0)
    seen = env.exploration_statistics()["visit_counts"]
    column = min(3, int((obs[0] + 1) / 2 * 4))
    row = 3 - min(3, int((obs[1] + 1) / 2 * 4))
    assert seen.sum() == 1
    assert seen[row, column] == 1
    for _ in range(50):
        env.step(2)
    found = env.exploration_statistics()
    assert found["visit_counts"].sum() == 51
    assert found["steps"] == 50
    assert found["reachable"].all()


def test_velocities_to_the_right_are_the_upper_rows():
    env = MountainCar(bins=2)
    env.reset(seed=0)
    for _ in range(10):
        env.step(2)
    counts = env.exploration_statistics()["visit_counts"]
    assert counts[0].sum() > counts[1].sum()


def test_goals_are_counted():
    env = MountainCarContinuous()
    obs, _ = env.reset(seed=0)
    steps, ended = 0, False
    while not ended:  # push along: energy grows until the car is over the hill
        obs, _, ended, cut, _ = env.step(np.array([1.0 if obs[1] >= 0 else -1.0], np.float32))
        steps += 1
        assert not cut
    found = env.exploration_statistics()
    assert found["goals_reached"] == 1
    assert found["first_goal_step"] == steps


def test_too_few_bins_are_refused():
    with pytest.raises(ConfigError, match="bins=1"):
        MountainCar(bins=1)
