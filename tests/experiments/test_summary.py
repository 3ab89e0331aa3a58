"""The final figures of a run."""

from __future__ import annotations

import pytest

from rllib_rise.experiments.run.exploration import ExplorationTracker
from rllib_rise.experiments.run.run_directory import MetricsFile, RunDirectory
from rllib_rise.experiments.run.summary import summarise


@pytest.mark.parametrize("warmup", [0, 10_000])
def test_the_speed_is_that_of_training(tmp_path, warmup: int):
    """Whatever Phase 1 took: its steps may come from another run, in no time at all."""
    run = RunDirectory(tmp_path)
    metrics = MetricsFile(run.metrics, keep_iterations=0)
    for iteration, (steps, rate) in enumerate([(100, 50.0), (300, 100.0)], start=1):
        metrics.append(
            {
                "iteration": iteration,
                "env_steps": warmup + steps,
                "seconds": 60.0 + 2 * iteration,
                "steps_per_second": rate,
                "intrinsic_warmup_steps": warmup,
            }
        )
    found = summarise(run, ExplorationTracker())
    assert found["steps_per_second"] == pytest.approx(300 / 4)  # 100 in 2 s, 200 in 2 s
    assert found["env_steps"] == warmup + 300
    assert found["seconds"] == 64


def test_the_cost_of_the_bonus_is_that_of_all_modules(tmp_path):
    run = RunDirectory(tmp_path)
    metrics = MetricsFile(run.metrics, keep_iterations=0)
    for iteration, seconds in enumerate((9.0, 0.1, 0.2), start=1):
        metrics.append(
            {
                "iteration": iteration,
                "env_steps": 100 * iteration,
                "seconds": iteration,
                "steps_per_second": 100.0,
                "a/intrinsic_seconds": seconds,
                "b/intrinsic_seconds": 0.5,
                "a/intrinsic_megabytes": float(iteration),
                "b/intrinsic_megabytes": 1.0,
            }
        )
    found = summarise(run, ExplorationTracker())
    assert found["bonus_seconds"] == pytest.approx(0.7)  # the median of 9.5, 0.6 and 0.7
    assert found["bonus_megabytes"] == 4


@pytest.mark.parametrize(
    ("rewards", "left"),
    [
        ([4.0, 2.0, 1.0, None], 0.25),  # no update in the last iteration
        ([2.0, 2.0, 1.0, 0.0], 0.25),
        ([None, 4.0, 1.0, 1.0], 0.25),  # Phase 1 took the beginning
        ([0.0, 0.0, 0.0, 0.0], None),
        ([-0.1, 0.2, -0.2, 0.1], None),  # standardised: around 0
    ],
)
def test_what_is_left_of_the_bonus(tmp_path, rewards: list, left: float | None):
    run = RunDirectory(tmp_path)
    metrics = MetricsFile(run.metrics, keep_iterations=0)
    rows = zip((50, 500, 950, 1000), rewards, strict=True)
    for iteration, (steps, reward) in enumerate(rows, start=1):
        row = {"iteration": iteration, "env_steps": steps, "seconds": 1, "steps_per_second": 10.0}
        metrics.append(row | ({} if reward is None else {"intrinsic_reward_mean": reward}))
    found = summarise(run, ExplorationTracker())
    assert found.get("bonus_left") == (None if left is None else pytest.approx(left))


def test_what_a_method_found_out_is_kept(tmp_path):
    run = RunDirectory(tmp_path)
    row = {"iteration": 1, "env_steps": 10, "seconds": 1, "steps_per_second": 10.0}
    found = {"rise_k": 6.0, "rise_intrinsic_dimension": 2.5}
    MetricsFile(run.metrics, keep_iterations=0).append(row | found | {"intrinsic_clipped_k": 0.0})
    figures = summarise(run, ExplorationTracker())
    assert {name: figures.get(name) for name in found} == found
    assert "intrinsic_clipped_k" not in figures


def test_the_return_in_the_middle_is_that_of_the_tenth_before_it(tmp_path):
    run = RunDirectory(tmp_path)
    metrics = MetricsFile(run.metrics, keep_iterations=0)
    for iteration, total in enumerate((9.0, 9.0, 9.0, 9.0, 4.0, 9.0, 9.0, 9.0, 9.0, 6.0), start=1):
        row = {"iteration": iteration, "env_steps": 100 * iteration, "seconds": 1}
        metrics.append(row | {"steps_per_second": 1.0, "episodes": 2.0, "return_sum": total})
    found = summarise(run, ExplorationTracker())
    assert (found["return_at_half"], found["return"]) == (2.0, 3.0)
