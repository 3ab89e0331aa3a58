"""Running standardisation of the bonus."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from phase1_helpers import states
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from small_algorithms import small

from rllib_rise.bonuses import Bonus, BonusSettings
from rllib_rise.rllib.runtime import IntrinsicRuntime


class First(Bonus):
    """The first number of an observation."""

    name = "first"

    def reward(self, batch):
        return batch.obs[:, 0]


def make(standardize: bool | str = True) -> IntrinsicRuntime:
    runtime = IntrinsicRuntime(First, BonusSettings(lambda_0=1.0, standardize=standardize))
    runtime.add_module("m", gym.spaces.Box(-9, 9, (1,), np.float32))
    return runtime


def given(runtime: IntrinsicRuntime, values: list[float]) -> torch.Tensor:
    batch = {
        Columns.OBS: torch.tensor(values)[:, None],
        Columns.REWARDS: torch.zeros(len(values)),
    }
    runtime.apply("m", batch, None, None)
    return batch[Columns.REWARDS]


def test_the_first_batch_is_judged_by_itself_later_ones_by_those_before():
    runtime, generator = make(), np.random.default_rng(0)
    batches = generator.normal(5, 3, size=(4, 50)).astype(np.float32)
    for number, batch in enumerate(batches):
        known = batches[: max(1, number)].ravel()
        expected = (batch - known.mean()) / known.std()
        np.testing.assert_allclose(given(runtime, batch.tolist()), expected, rtol=1e-4, atol=1e-5)


def test_by_the_batch_a_vanishing_bonus_keeps_its_scale():
    by_batch, by_all = make("batch"), make(True)
    for size in (1.0, 0.1, 0.01):
        values = [0.0, size, 2 * size]
        expected = [-(1.5**0.5), 0.0, 1.5**0.5]
        np.testing.assert_allclose(given(by_batch, values), expected, rtol=1e-5, atol=1e-6)
        vanishing = given(by_all, values)
    assert float(vanishing.std(correction=0)) < 0.02
    assert BonusSettings(standardize="batch").needs() == frozenset()
    assert not any("standardize:" in name for name in by_batch.get_state()["tensors"])


@pytest.mark.parametrize("standardize", [True, "batch"])
def test_a_constant_bonus_is_nothing(standardize: bool | str):
    runtime = make(standardize)
    for _ in range(2):
        assert torch.equal(given(runtime, [3.0, 3.0, 3.0]), torch.zeros(3))


def test_the_moments_are_in_the_checkpoint():
    one, other = make(), make()
    given(one, [1.0, 5.0, 9.0])
    other.set_state(one.get_state())
    batch = [2.0, 4.0, 30.0]
    assert torch.equal(given(one, batch), given(other, batch))


def test_a_checkpoint_without_moments_begins_with_none():
    plain = IntrinsicRuntime(First, BonusSettings(lambda_0=1.0))
    plain.add_module("m", gym.spaces.Box(-9, 9, (1,), np.float32))
    given(plain, [100.0, 200.0])
    runtime = make()
    runtime.set_state(plain.get_state())
    assert given(runtime, [1.0, 3.0]).tolist() == [-1.0, 1.0]


@pytest.mark.usefixtures("ray_cluster")
def test_reported_figures_are_those_before_standardisation(build):
    algorithm = build(small("PPO").rise(standardize=True, lambda_0=0.5))
    for _ in range(2):
        figures = algorithm.train()["learners"][DEFAULT_MODULE_ID]
    assert figures["intrinsic_reward_mean"] > 0.1
    names = [name for name in states(algorithm)[0]["tensors"] if "standardize:" in name]
    assert len(names) == 3
