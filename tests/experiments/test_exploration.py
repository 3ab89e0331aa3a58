from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from rllib_rise.experiments.run.exploration import ExplorationTracker


class Runners:
    """Env runners that report what the test says."""

    def __init__(self) -> None:
        self.reports: dict = {}
        self.silent = False
        self.env_runner_group = self
        self.config = SimpleNamespace(num_env_runners=1, sample_timeout_s=1.0)

    def foreach_env_runner(self, _, *, local_env_runner, timeout_seconds):
        assert not local_env_runner
        assert timeout_seconds == 1.0
        return [] if self.silent else [dict(self.reports)]


def report(cells: list[int], steps: int, goals: int = 0) -> dict:
    counts = np.zeros((2, 2), np.int64)
    np.add.at(counts.reshape(-1), cells, 1)
    reachable = np.array([[True, True], [True, False]])
    return {
        "visit_counts": counts,
        "reachable": reachable,
        "steps": steps,
        "goals_reached": goals,
        "first_goal_step": steps if goals else None,
    }


def test_visits_add_up_over_environments_and_divide_by_reachable_cells():
    runners, tracker = Runners(), ExplorationTracker()
    runners.reports = {(0, 0): report([0, 0], 2), (0, 1): report([0, 1], 2, goals=1)}
    assert tracker.poll(runners, 4) == {"coverage": 2 / 3, "goals_reached": 1}
    assert tracker.first_goal_steps == 4
    assert tracker.visit_counts.tolist() == [[3, 1], [0, 0]]


def test_env_runners_that_do_not_answer_in_time_are_asked_again():
    runners, tracker = Runners(), ExplorationTracker()
    runners.silent = True
    assert tracker.poll(runners, 2) == {}
    runners.silent, runners.reports = False, {(1, 0): report([0, 1, 2], 3)}
    assert tracker.poll(runners, 4) == {"coverage": 1.0, "goals_reached": 0}


def test_an_environment_that_was_made_anew_keeps_its_forerunners_visits():
    runners, tracker = Runners(), ExplorationTracker()
    runners.reports = {(0, 0): report([0, 1, 1], 3, goals=1)}
    tracker.poll(runners, 3)
    runners.reports = {(0, 0): report([0, 2], 1)}
    tracker.poll(runners, 5)
    assert tracker.visit_counts.tolist() == [[2, 2], [1, 0]]
    assert tracker.goals_reached == 1


def test_what_was_saved_is_added_to_after_a_restart(tmp_path: Path):
    runners, tracker = Runners(), ExplorationTracker()
    runners.reports = {(0, 0): report([0, 1], 2, goals=1)}
    tracker.poll(runners, 2)
    tracker.save(tmp_path / "x.npz")
    other = ExplorationTracker()
    other.load(tmp_path / "x.npz", 2)
    runners.reports = {(0, 0): report([2], 1)}
    assert other.poll(runners, 3) == {"coverage": 1.0, "goals_reached": 1}
    assert other.first_goal_steps == 2


def test_the_first_goal_is_counted_in_steps_of_the_run_within_its_iteration():
    runners, tracker = Runners(), ExplorationTracker()
    runners.reports = {(0, i): report([0], 8) for i in range(4)}
    tracker.poll(runners, 32)
    runners.reports = {(0, i): report([0], 16) for i in range(4)}
    runners.reports[0, 2] = {**report([0], 16, goals=2), "first_goal_step": 11}
    tracker.poll(runners, 64)
    assert tracker.first_goal_steps == 44


def test_environments_without_statistics_give_no_figures():
    assert ExplorationTracker().poll(Runners(), 10) == {}
