"""What the terminal shows of a sweep."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from rllib_rise.experiments.progress import PlannedRun, RunProgress
from rllib_rise.experiments.sweep.display import SweepDisplay


def trial(state: str, steps: int, *, setting: str = "alpha 0.1") -> RunProgress:
    return RunProgress(PlannedRun(setting, 0, Path("x")), steps, 100, state, None)


def shown(trials: int) -> SweepDisplay:
    return SweepDisplay(Console(file=io.StringIO()), trials, budget=100)


TRIALS = [trial("done", 110), trial("stopped", 30), trial("failed", 20), trial("running", 40),
          trial("waiting", 0)]  # fmt: skip


def test_trials_that_are_not_made_yet_count_as_waiting():
    display = shown(9)
    assert display.line(TRIALS, 80.0) == (
        "9 trials: 1 done, 1 stopped, 1 failed, 1 running, 5 waiting; time left 1:20"
    )


def test_what_was_ended_early_is_not_waited_for():
    done, whole = shown(9).steps(TRIALS)
    assert done == 110 + 30 + 20 + 40
    assert whole - done == 60 + 5 * 100


def test_only_trials_that_run_have_a_line():
    many = [*TRIALS, trial("running", 1, setting="alpha 0.5")]
    assert shown(9).table(many, None).row_count == 2


def test_without_a_terminal_it_prints_a_line():
    text = io.StringIO()
    with SweepDisplay(Console(file=text), 9, budget=100) as display:
        display.update(TRIALS)
        display.update(TRIALS)  # too soon for another
    assert text.getvalue().count("9 trials: 1 done") == 1
