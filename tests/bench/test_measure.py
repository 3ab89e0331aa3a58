"""Ratios of things that were timed in turn."""

from __future__ import annotations

import pytest

from rllib_rise.bench.measure import Figure, in_turn, ratio_of


def test_the_ratio_is_the_median_over_pairs():
    figure = ratio_of("x", [2, 4, 6, 100], [1, 2, 2, 1])
    assert figure.ratio == 2.5
    assert figure.low <= figure.ratio <= figure.high


def test_what_slows_both_drops_out():
    slow = [1.0, 5.0, 2.0, 7.0]
    figure = ratio_of("x", [3 * value for value in slow], slow)
    assert (figure.low, figure.ratio, figure.high) == (3, 3, 3)


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
