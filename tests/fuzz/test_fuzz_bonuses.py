"""Every bonus, behind the layer that takes RLlib's batches: what it adds is finite, or refused."""

from __future__ import annotations

import contextlib

import torch
from batches import SHAPES, WEIGHTS, Case, batches, cases
from hypothesis import strategies as st
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from strategies import tensors
from tiers import fuzz

from rllib_rise.bonuses import RISE, Fit, FitSteps, Transitions, parse_settings
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


@fuzz(slow=1500, case=cases(), data=st.data())
def test_no_reward_is_ever_nan_or_infinite(case, data):
    for _ in range(data.draw(st.integers(1, 3))):
        give(case, *data.draw(batches(case)))


@fuzz(slow=300, case=cases(WEIGHTS), data=st.data())
def test_after_any_batch_an_ordinary_one_is_rewarded(case, data):
    for _ in range(data.draw(st.integers(1, 2))):
        with contextlib.suppress(RiseError):
            give(case, *data.draw(batches(case)))
    try:
        give(case, *data.draw(batches(case, ordinary=True)))
    except RiseError as error:
        raise AssertionError("what came before has spoiled the bonus") from error


@fuzz(
    slow=150,
    seen=tensors(
        st.tuples(st.sampled_from([127, 128, 140]), st.sampled_from(SHAPES)).map(
            lambda drawn: (drawn[0], *drawn[1])
        ),
        dtypes=st.sampled_from([torch.float32, torch.uint8]),
    ),
    settings=st.fixed_dictionaries(
        {
            "k": st.sampled_from(["auto", 3]),
            "encoder": st.sampled_from(["auto", "vae", "random", "identity"]),
            "form": st.sampled_from(["paper", "box-cox", "intrinsic-dim"]),
            "embedding_size": st.just(4),
            "vae_epochs": st.just(1),
        }
    ),
)
def test_rewards_after_phase_1_are_finite(seen, settings):
    bonus = RISE(parse_settings(RISE, settings), seen.shape[1:])
    if not bonus.fitted:
        bonus.adopt(finished(bonus.fit(seen)))
    rewards = bonus.reward(Transitions(obs=seen[:20]))
    assert rewards.shape == (20,)
    assert rewards.isfinite().all()


def finished(steps: FitSteps) -> Fit:
    """The fit that a generator returns at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
