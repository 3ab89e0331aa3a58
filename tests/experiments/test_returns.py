from __future__ import annotations

import math

import pytest

from rllib_rise.experiments.run.returns import RecentReturns, mean_return


def row(episodes: float, mean: float = math.nan) -> dict[str, float]:
    return {"episodes": episodes, "episode_return_mean": mean}


def test_one_early_success_does_not_weigh_as_much_as_many_failures():
    recent, early, late = RecentReturns(), row(1, 1.0), row(63, 0.0)
    recent.add(early)
    assert early["episode_return_mean"] == 1.0
    recent.add(late)
    assert late["episode_return_mean"] == pytest.approx(1 / 64)
    assert mean_return([early, late]) == pytest.approx(1 / 64)


def test_the_mean_reaches_back_over_at_least_a_hundred_episodes_and_no_further():
    recent = RecentReturns()
    rows = [row(60, 1.0), row(60, 0.0), row(60, 0.0)]
    for one in rows:
        recent.add(one)
    assert [one["episode_return_mean"] for one in rows] == [1.0, 0.5, 0.0]


def test_iterations_without_episodes_keep_the_mean():
    recent, silent = RecentReturns(), row(0)
    recent.add(row(10, 0.3))
    recent.add(silent)
    assert silent["episode_return_mean"] == pytest.approx(0.3)
    assert silent["return_sum"] == 0


def test_iterations_without_episodes_are_not_kept():
    recent = RecentReturns()
    for one in [row(10, 0.3), *(row(0) for _ in range(1000))]:
        recent.add(one)
    assert len(recent._rows) == 1


def test_before_any_episode_there_is_no_mean():
    first = row(0)
    RecentReturns().add(first)
    assert "episode_return_mean" not in first
    assert mean_return([first]) is None


def test_a_resumed_run_goes_on_with_the_rows_it_has():
    whole, rows = RecentReturns(), [row(40, 1.0), row(40, 0.0), row(40, 0.5)]
    for one in rows:
        whole.add(one)
    resumed, last = RecentReturns(rows[:2]), row(40, 0.5)
    resumed.add(last)
    assert last == rows[2]
