from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_rise.bonuses.moments import RunningMoments


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_batches_merge_to_the_moments_of_all_data(sizes: list[int], seed: int):
    data = np.random.default_rng(seed).normal(5, 3, size=(sum(sizes), 2))
    moments = RunningMoments((2,))
    start = 0
    for size in sizes:
        moments.update(torch.from_numpy(data[start : start + size]))
        start += size
    assert moments.count == sum(sizes)
    if sum(sizes):
        np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-12)
        np.testing.assert_allclose(moments.var, data.var(0), rtol=1e-9, atol=1e-12)


def test_far_from_zero_the_variance_keeps_its_digits():
    moments = RunningMoments()
    for chunk in torch.arange(1000, dtype=torch.float64).add(1e9).split(7):
        moments.update(chunk)
    np.testing.assert_allclose(moments.var, np.arange(1000).var(), rtol=1e-6)


def test_nothing_seen_means_zero_not_nan():
    assert RunningMoments().std == 0


def test_moments_are_saved_and_restored():
    moments, other = RunningMoments((3,)), RunningMoments((3,))
    moments.update(torch.randn(10, 3))
    other.load_state_dict(moments.state_dict())
    assert torch.equal(other.mean, moments.mean)
    assert torch.equal(other.var, moments.var)
    assert other.count == 10
