"""Bullet's robots at once against one after the other: nothing may differ but the time."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import load_env_creator
from ray import tune
from ray.tune.registry import ENV_CREATOR, _global_registry

from rllib_rise import RISEPPOConfig
from rllib_rise.envs import ATARI_ID, VECTOR_ENTRY_POINTS, bullet
from rllib_rise.rllib.registration import register

pytest.importorskip("pybullet_envs_gymnasium")
IDS = sorted(set(VECTOR_ENTRY_POINTS) - {ATARI_ID})
CHEETAH, HOPPER = "HalfCheetahBulletEnv-v0", "HopperBulletEnv-v0"
HUMANOID, PENDULUM = "HumanoidBulletEnv-v0", "InvertedPendulumBulletEnv-v0"


def one_by_one(env_id: str, num_envs: int, **arguments) -> gym.vector.VectorEnv:
    return gym.vector.SyncVectorEnv([lambda: bullet.make(env_id, **arguments)] * num_envs)


def at_once(env_id: str, num_envs: int, **arguments) -> gym.vector.VectorEnv:
    return load_env_creator(VECTOR_ENTRY_POINTS[env_id])(env_id, num_envs, **arguments)


def both(env_id: str, num_envs: int, **arguments) -> list[gym.vector.VectorEnv]:
    return [make(env_id, num_envs, **arguments) for make in (one_by_one, at_once)]


def play(env, steps: int, *, dtype=np.float32, **reset) -> list[tuple]:
    """Random actions, some out of bounds; each array as it was returned, and its bits then."""
    rng = np.random.default_rng(steps)
    results = [env.reset(**reset)]
    bits = [results[0][0].tobytes()]
    for _ in range(steps):
        actions = rng.uniform(-1.3, 1.3, env.action_space.shape).astype(dtype)
        results.append(env.step(actions))
        bits.append([part.tobytes() for part in results[-1][:4]])
    return list(zip(results, bits, strict=True))


def assert_equal(first: list[tuple], second: list[tuple]) -> None:
    for (result, bits), (other, other_bits) in zip(first, second, strict=True):
        assert bits == other_bits
        assert result[-1] == other[-1] == {}
        for part, other_part in zip(result[:-1], other[:-1], strict=True):
            assert (part.dtype, part.shape) == (other_part.dtype, other_part.shape)


def ends(path: list[tuple], flags: int) -> int:
    return sum(int(result[flags].sum()) for result, _ in path[1:])


@pytest.mark.parametrize("env_id", IDS)
def test_paths_are_equal_to_the_last_bit(env_id: str):
    # Ants live long, and a cheetah's episode is ended by nothing but the limit of time.
    envs = both(env_id, 3, max_episode_steps=70)
    for steps, options in enumerate(
        ({"seed": 3}, {"dtype": np.float64}, {"seed": [7, None, 7]}), start=200
    ):
        first, second = (play(env, steps, **options) for env in envs)
        assert_equal(first, second)
        assert ends(first, 2) + ends(first, 3) >= 6


@pytest.mark.parametrize("env_id", [CHEETAH, PENDULUM])
def test_the_limit_of_time_may_be_an_argument(env_id: str):
    first, second = (play(env, 20, seed=1) for env in both(env_id, 2, max_episode_steps=4))
    assert_equal(first, second)
    assert ends(first, 3) == 2 * (20 // (4 + 1))


def test_the_limit_of_time_is_that_of_the_id_unless_it_is_taken_away():
    first, second = (play(env, 1002, seed=1) for env in both(CHEETAH, 1))
    assert_equal(first, second)
    assert [bool(result[3]) for result, _ in first[1:]] == [False] * 999 + [True] + [False] * 2
    assert ends(play(at_once(CHEETAH, 1, max_episode_steps=-1), 1002), 3) == 0


@pytest.mark.parametrize("env_id", [HUMANOID, "AntBulletEnv-v0"])
def test_one_robot_and_actions_in_any_order_of_memory(env_id: str):
    assert_equal(*(play(env, 60, seed=1) for env in both(env_id, 1)))
    for kind in (np.float32, np.float64):
        results = []
        for env in both(env_id, 2):
            env.reset(seed=2)
            rng = np.random.default_rng(0)
            actions = np.asfortranarray(rng.normal(size=(9, *env.action_space.shape)).astype(kind))
            results.append([env.step(one)[:2] for one in actions])
        for (obs, rewards), (other_obs, other_rewards) in zip(*results, strict=True):
            np.testing.assert_array_equal(obs, other_obs)
            np.testing.assert_array_equal(rewards, other_rewards)


@pytest.mark.parametrize("env_id", [HOPPER, PENDULUM])
def test_nobody_writes_to_what_was_returned(env_id: str):
    env = at_once(env_id, 2)
    for result, bits in play(env, 60, seed=0)[1:]:
        assert [part.tobytes() for part in result[:4]] == bits


@pytest.mark.parametrize("env_id", [HOPPER, PENDULUM])
def test_some_may_be_reset_alone(env_id: str):
    paths = []
    for env in both(env_id, 3):
        play(env, 10, seed=0)
        mask = np.array([False, True, False])
        path = [(env.reset(seed=[1, 2, 3], options={"reset_mask": mask}), None)]
        action = np.full(env.action_space.shape, 0.5, dtype=np.float32)
        path += [(env.step(action), None) for _ in range(30)]
        paths.append([(result, result[0].tobytes()) for result, _ in path])
    assert_equal(*paths)


def test_actions_that_are_no_numbers_are_refused_where_they_count():
    env = at_once(HOPPER, 2, max_episode_steps=3)
    env.reset(seed=0)
    actions = np.zeros((2, 3), dtype=np.float32)
    for _ in range(3):
        *_, truncated, _ = env.step(actions)
    assert truncated.all()
    env.step(actions * np.nan)
    with pytest.raises(ValueError, match="finite"):
        env.step(actions * np.nan)


def test_pictures_are_equal_too():
    pictures = []
    for env in both("AntBulletEnv-v0", 1, render_mode="rgb_array"):
        play(env, 30, seed=0)
        pictures.append(env.render()[0])
    assert pictures[0].std() > 0
    np.testing.assert_array_equal(*pictures)


def test_what_gymnasium_makes_of_the_ids_is_as_it_was():
    at_once(HOPPER, 1)
    assert type(gym.make_vec(HOPPER, 1)) is gym.vector.SyncVectorEnv
    assert gym.spec(HOPPER).vector_entry_point is None


def mode(env_id: str) -> str:
    config = RISEPPOConfig().environment(env_id)
    config.validate()
    return config.gym_env_vectorize_mode


@pytest.mark.parametrize("env_id", bullet.IDS)
def test_our_configs_step_them_at_once_where_that_is_there(env_id: str):
    known = env_id in VECTOR_ENTRY_POINTS
    assert mode(env_id) == ("vector_entry_point" if known else "sync")


def test_rllib_makes_them_with_all_their_arguments():
    create = _global_registry.get(ENV_CREATOR, HOPPER)
    env = create({"num_envs": 2, "max_episode_steps": 5})
    assert ends(play(env, 6), 3) == 2
    assert isinstance(create({"max_episode_steps": 5}), gym.Env)
    for number in ({}, {"num_envs": 2}):
        with pytest.raises(TypeError, match="gravity"):
            create({"gravity": 1.0, **number})


def test_a_users_creator_of_that_name_is_asked_for_single_environments():
    tune.register_env(HOPPER, lambda config: gym.make("Pendulum-v1"))
    try:
        assert mode(HOPPER) == "sync"
    finally:
        register()
    assert mode(HOPPER) == "vector_entry_point"


def test_an_evaluation_config_with_another_environment_steps_it_in_its_own_way():
    config = RISEPPOConfig().environment(PENDULUM)
    config.validate()
    config = config.copy(copy_frozen=False).environment("InvertedPendulumSwingupBulletEnv-v0")
    config.validate()
    assert config.gym_env_vectorize_mode == "sync"
    config.environment(HOPPER)
    config.validate()
    assert config.gym_env_vectorize_mode == "vector_entry_point"
