"""Every bonus, behind the layer that takes RLlib's batches: what it adds is finite, or refused."""

from __future__ import annotations

import contextlib

import torch
from batches import METHODS, Case, batches, cases
from hypothesis import strategies as st
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from tiers import fuzz

from rllib_rise.errors import RiseError


def give(case: Case, batch: dict, chunks: list) -> None:
    """Add the bonus to a batch, and look at what came of it."""
    before, metrics = dict(batch), MetricsLogger(root=True)
    case.runtime.apply("m", batch, None, metrics, chunks)
    rewards = batch[Columns.REWARDS]
    mask = batch.get(Columns.LOSS_MASK, torch.ones_like(rewards, dtype=torch.bool))
    assert rewards[mask].isfinite().all()
    assert rewards.shape == before[Columns.REWARDS].shape
    assert rewards.dtype == before[Columns.REWARDS].dtype
    assert torch.equal(batch[Columns.OBS], before[Columns.OBS])
    assert torch.equal(rewards[~mask].nan_to_num(), before[Columns.REWARDS][~mask].nan_to_num())


@fuzz(slow=1000, case=cases(st.sampled_from(METHODS)), data=st.data())
def test_no_reward_is_ever_nan_or_infinite(case, data):
    for _ in range(data.draw(st.integers(1, 3))):
        give(case, *data.draw(batches(case)))


@fuzz(slow=300, case=cases(st.sampled_from(METHODS)), data=st.data())
def test_after_any_batch_an_ordinary_one_is_rewarded(case, data):
    for _ in range(data.draw(st.integers(1, 2))):
        with contextlib.suppress(RiseError):
            give(case, *data.draw(batches(case)))
    try:
        give(case, *data.draw(batches(case, ordinary=True)))
    except RiseError as error:
        raise AssertionError("what came before has spoiled the bonus") from error
