from __future__ import annotations

import gymnasium as gym
import pytest
import torch

from rllib_rise.bonuses import RISE, Count, Need, Transitions, WeightedSum, parse_settings
from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.errors import ConfigError

RISE_PART = {"method": "rise", "k": 3, "lambda_0": 2.0, "kappa": 0.5, "clock": "updates"}
COUNT_PART = {"method": "count", "lambda_0": 0.25}


def make(*parts: dict, **values) -> WeightedSum:
    settings = parse_settings(WeightedSum, {"parts": list(parts), **values})
    return WeightedSum(settings, (2,), seed=0, action_space=gym.spaces.Discrete(2))


def batch(seed: int = 0) -> Transitions:
    path = torch.randn(65, 2, generator=torch.Generator().manual_seed(seed))
    return Transitions(obs=path[:-1], next_obs=path[1:], actions=torch.arange(64) % 2)


def single(cls, **values):
    return cls(parse_settings(cls, values), (2,), seed=0)


def test_parts_are_weighed_each_by_its_own_clock():
    bonus, data = make(RISE_PART, COUNT_PART), batch()
    rise, count = single(RISE, k=3).reward(data), single(Count).reward(data)
    torch.testing.assert_close(bonus.reward(data), 2 * rise + 0.25 * count)
    bonus.time = {"updates": 3, "env_steps": 1000}.__getitem__
    torch.testing.assert_close(bonus.reward(data), 2 * 0.5**3 * rise + 0.25 * count)


def test_standardised_parts_have_the_same_scale():
    large = {"method": "rise", "k": 3, "lambda_0": 1.0, "standardize": True}
    bonus, plain, moments = make(large), single(RISE, k=3), RunningMoments()
    for seed in range(3):
        bonus.reward(batch(seed))
        bonus.update(batch(seed))
        moments.update(plain.reward(batch(seed)))
    expected = (plain.reward(batch(9)) - moments.mean) / moments.std
    torch.testing.assert_close(bonus.reward(batch(9)), expected.float())
    assert abs(float(expected.std()) - 1) < 0.5


def test_a_restored_sum_goes_on_bit_for_bit():
    parts = [{"method": "rnd"}, {"method": "icm"}, {**RISE_PART, "standardize": True}]
    bonus, other = make(*parts), make(*parts)
    for seed in range(2):
        bonus.reward(batch(seed))
        bonus.update(batch(seed))
    other.load_state_dict({name: tensor.clone() for name, tensor in bonus.state_dict().items()})
    for seed in (5, 6):
        assert torch.equal(bonus.reward(batch(seed)), other.reward(batch(seed)))
        bonus.update(batch(seed))
        other.update(batch(seed))


def test_a_part_with_a_phase_1_has_it():
    part = {"method": "rise", "warmup_steps": 1000}
    bonus = make(COUNT_PART, part)
    settings = bonus.settings
    assert WeightedSum.warmup_steps(settings, (2,)) == 1000
    assert not bonus.fitted
    obs = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    steps = bonus.fit(obs)
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        fit = stop.value
    report = bonus.adopt(fit)
    assert bonus.fitted
    assert report.figures
    assert bonus.reward(batch()).shape == (64,)


def test_a_sum_needs_what_its_parts_need():
    settings = parse_settings(
        WeightedSum, {"parts": [{"method": "icm"}, {"method": "count", "standardize": True}]}
    )
    assert WeightedSum.needs(settings) == {Need.NEXT_OBS, Need.ACTIONS, Need.LEARNING, Need.RUNNING}
    assert Need.RUNNING in settings.needs()
    assert settings.clocks() == {"env_steps"}


def test_every_part_is_logged():
    bonus = make(RISE_PART, COUNT_PART)
    bonus.reward(batch())
    figures = bonus.metrics()
    assert figures["sum_1_mean"] == pytest.approx(
        float(0.25 * single(Count).reward(batch()).mean())
    )
    assert figures["sum_0_rise_k"] == 3


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ([], "at least 1"),
        ([{"k": 3}], r"parts\[0\].method=None: name a method"),
        ([{"method": 5}], r"parts\[0\].method=5: name a method"),
        ([COUNT_PART, {"method": "none"}], r"parts\[1\].method='none': name a method"),
        ([{"method": "count", "zeta": 0.1}], r"parts\[0\].zeta belongs to the sum"),
        ([{"method": "count", "cel": 0.1}], r"parts\[0\].cel is not .* did you mean 'cell'"),
        ([{"method": "sum", "parts": [COUNT_PART]}], "a sum of sums"),
        ([{"method": "riise"}], "did you mean 'rise'"),
    ],
)
def test_what_cannot_be_summed_is_refused(parts: list, complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        make(*parts)
