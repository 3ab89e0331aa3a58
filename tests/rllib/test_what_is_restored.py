"""What RLlib's checkpoints bring back and what not, as docs/algorithms.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from keeping import LEARNERS
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME
from small_algorithms import small

from rllib_rise.rllib.reseed import reseed_env_runners

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture
def restore(build, tmp_path: Path):
    """Trains an algorithm, saves it, and restores it into another one."""

    def train_and_restore(make: Any, iterations: int = 7) -> tuple[Any, Any]:
        trained = build(make())
        for _ in range(iterations):
            trained.train()
        trained.save_to_path(str(tmp_path))
        restored = build(make())
        restored.restore_from_path(str(tmp_path))
        return trained, restored

    return train_and_restore


def learner(algorithm: Any) -> Any:
    return algorithm.learner_group._learner


def first_observations(algorithm: Any) -> np.ndarray:
    episodes = algorithm.env_runner.sample(num_timesteps=64, explore=True)
    return np.concatenate([episode.get_observations() for episode in episodes])


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_equal(*pair)
    else:
        assert np.array_equal(one, other)


@pytest.mark.parametrize("name", ["PPO", "DQN", "SAC"])
def test_networks_optimizers_and_counters_are_restored(restore, name: str):
    trained, restored = restore(lambda: small(name))
    networks = [learner(one).module[DEFAULT_MODULE_ID].state_dict() for one in (trained, restored)]
    assert networks[0].keys() == networks[1].keys()  # with target networks
    assert all(torch.equal(value, networks[1][key]) for key, value in networks[0].items())
    assert_equal(*(learner(one).get_state()["optimizer"] for one in (trained, restored)))
    for count in (
        lambda one: one.iteration,
        lambda one: one.env_runner.num_env_steps_sampled_lifetime,  # which epsilon follows
        lambda one: one.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)),
        lambda one: one.metrics.peek((ENV_RUNNER_RESULTS, "num_episodes_lifetime")),
    ):
        assert count(trained) == count(restored) > 0


def test_running_means_of_observations_are_restored(restore):
    def make():
        return small("PPO").env_runners(env_to_module_connector=lambda *a, **k: MeanStdFilter())

    trained, restored = restore(make)
    assert_equal(*(one.env_runner._env_to_module.get_state() for one in (trained, restored)))


@pytest.mark.parametrize("name", ["DQN", "SAC"])
def test_replay_buffers_are_not_restored(restore, name: str):
    trained, restored = restore(lambda: small(name))
    assert trained.local_replay_buffer.get_num_timesteps() == trained.iteration * 16
    assert restored.local_replay_buffer.get_num_timesteps() == 0


def test_the_adaptive_kl_coefficient_is_not_restored(restore):
    trained, restored = restore(lambda: small("PPO").training(kl_coeff=0.2))
    coefficients = [learner(one).curr_kl_coeffs_per_module for one in (trained, restored)]
    assert coefficients[0][DEFAULT_MODULE_ID] != pytest.approx(0.2)
    assert coefficients[1][DEFAULT_MODULE_ID] == pytest.approx(0.2)


def test_the_temperature_of_sac_is_not_restored(restore):
    trained, restored = restore(lambda: small("SAC").training(initial_alpha=1.0))
    before, after = (learner(one).curr_log_alpha[DEFAULT_MODULE_ID] for one in (trained, restored))
    assert before != 0
    assert after == 0  # log 1


def test_environments_and_their_generators_begin_again_as_the_run_did(restore, build):
    trained, restored = restore(lambda: small("PPO"), iterations=1)
    assert all(episode.t > 0 for episode in trained.env_runner._ongoing_episodes)
    seen, again = first_observations(restored), first_observations(build(small("PPO")))
    assert np.array_equal(seen, again)
    assert not np.array_equal(seen, first_observations(trained))


def test_the_order_of_minibatches_begins_again_as_the_run_did(build, tmp_path: Path):
    def orders(algorithm: Any) -> torch.Tensor:
        algorithm.train()
        return torch.cat([obs for obs, _ in learner(algorithm).__dict__.pop("kept")])

    def make() -> Any:
        return small("PPO").learners(learner_class=LEARNERS["PPO"])

    trained = build(make())
    first, second = orders(trained), orders(trained)
    trained.save_to_path(str(tmp_path))
    restored = build(make())
    restored.restore_from_path(str(tmp_path))
    third = orders(restored)
    assert torch.equal(third, first)
    assert not torch.equal(third, second)


@pytest.mark.parametrize("runners", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_reseeded_env_runners_see_other_episodes_but_each_time_the_same(build, runners: int):
    def seen(number: int | None) -> np.ndarray:
        algorithm = build(small("PPO", runners=runners))
        if number is not None:
            reseed_env_runners(algorithm, number)
        (found,) = algorithm.env_runner_group.foreach_env_runner(
            lambda runner: [
                episode.get_observations() for episode in runner.sample(num_timesteps=64)
            ],
            local_env_runner=runners == 0,
        )
        return np.concatenate(found)

    plain, once, again, later = seen(None), seen(64), seen(64), seen(128)
    assert np.array_equal(once, again)
    assert not np.array_equal(plain, once)
    assert not np.array_equal(once, later)
