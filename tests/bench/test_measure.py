"""Ratios of things that were timed in turn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rllib_rise.bench.measure import (
    Figure,
    by_name,
    in_turn,
    median,
    ratio_of,
    ratio_over_starts,
)


def test_the_ratio_is_the_median_over_pairs():
    figure = ratio_of("x", [2, 4, 6, 100, 1, 1], [1, 2, 2, 1, 1, 2])
    assert (figure.low, figure.ratio, figure.high) == (0.5, 2, 100)


@pytest.mark.parametrize("pairs", [6, 15, 40])
def test_the_interval_of_a_median_holds_it_as_often_as_said(pairs: int):
    logs = np.random.default_rng(0).standard_cauchy((4000, pairs)).clip(-50, 50)
    figures = [ratio_of("x", np.exp(row), np.ones(pairs)) for row in logs]
    held = np.mean([figure.low <= 1 <= figure.high for figure in figures])
    assert 0.945 < held < 0.985


def test_five_pairs_have_no_interval():
    with pytest.raises(ValueError, match="5 pairs have no interval"):
        ratio_of("x", [1.0] * 5, [1.0] * 5)


def test_what_slows_both_drops_out():
    slow = [1.0, 5.0, 2.0, 7.0, 3.0, 9.0]
    figure = ratio_of("x", [3 * value for value in slow], slow)
    assert (figure.low, figure.ratio, figure.high) == (3, 3, 3)


def test_starts_count_as_one_each_and_their_spread_is_the_interval():
    medians = np.array([1.9, 2.0, 2.2])
    divisors = [[1.0, 2.0, 4.0]] * 3
    dividends = [[m * one for one in divisors[0]] for m in medians]
    dividends[0][0] *= 50  # one bad moment in one start
    figure = ratio_over_starts("x", dividends, divisors, ">= 1")
    expected = stats.ttest_1samp(np.log(medians), 0).confidence_interval(0.95)
    assert figure.ratio == pytest.approx(stats.gmean(medians))
    assert (figure.low, figure.high) == pytest.approx((np.exp(expected.low), np.exp(expected.high)))
    assert figure.holds


def test_one_start_has_the_interval_of_its_turns():
    slow, fast = [2.0, 3.0, 2.5, 2.1, 2.2, 2.0], [1.0, 1.1, 0.9, 1.0, 1.0, 1.2]
    assert ratio_over_starts("x", [slow], [fast]) == ratio_of("x", slow, fast)


def test_starts_are_collected_by_name():
    starts = [{"a": [1.0, 2.0], "b": [3.0]}, {"a": [9.0], "b": [4.0]}]
    assert by_name(starts) == {"a": [[1.0, 2.0], [9.0]], "b": [[3.0], [4.0]]}
    assert median(by_name(starts)["a"]) == 2.0
    assert median([1.0, 5.0, 2.0]) == 2.0


@pytest.mark.parametrize(
    ("goal", "holds"),
    [(">= 1", True), (">= 1.5", False), ("<= 2", True), ("<= 1.5", False), (None, None)],
)
def test_a_goal_holds_if_the_whole_interval_reaches_it(goal: str | None, holds: bool | None):
    assert Figure("x", 1.5, 1.2, 1.8, goal).holds is holds


def test_calls_take_turns_in_alternating_order():
    called = []
    seconds = in_turn({name: lambda name=name: called.append(name) for name in "ab"}, turns=3)
    assert "".join(called) == "ab" + "ba" + "ab" + "ba"
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}


def test_short_calls_are_timed_many_at_a_time():
    count = [0]
    in_turn({"a": lambda: count.__setitem__(0, count[0] + 1)}, turns=2, least_seconds=0.001)
    assert count[0] > 100
