"""What becomes of a reward that is no number."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns

from rllib_rise.bonuses import RE3, RISE, Bonus, parse_settings
from rllib_rise.errors import NonFiniteError
from rllib_rise.rllib.runtime import IntrinsicRuntime


def given(rewards: list[float], *, cls: type[Bonus] = RISE, **settings) -> torch.Tensor:
    runtime = IntrinsicRuntime(cls, parse_settings(cls, {"k": 1, **settings}))
    runtime.add_module("m", gym.spaces.Box(-9, 9, (1,), np.float32))
    observed = torch.arange(float(len(rewards)))[:, None] * 4
    batch = {Columns.OBS: observed, Columns.REWARDS: torch.tensor(rewards)}
    runtime.apply("m", batch, None, None)
    return batch[Columns.REWARDS]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_environments_reward_that_is_no_number_is_refused(bad: float):
    with pytest.raises(NonFiniteError, match=r"1 rewards of module 'm' .* environment's rewards"):
        given([0.0, bad, 1.0])


@pytest.mark.parametrize("cls", [RISE, RE3])
def test_a_weight_with_which_the_bonus_overflows_is_refused(cls: type[Bonus]):
    assert given([1.0, 1.0], cls=cls, lambda_0=1e30).isfinite().all()
    with pytest.raises(NonFiniteError, match=r"lambda_t=1e\+300.*intrinsic.lambda_0"):
        given([1.0, 1.0], cls=cls, lambda_0=1e300)


def test_a_sum_of_large_rewards_that_overflows_is_refused():
    with pytest.raises(NonFiniteError, match="2 rewards"):
        given([3.4e38, 3.4e38], lambda_0=1e38, alpha=0.0)
