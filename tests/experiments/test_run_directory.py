from __future__ import annotations

from pathlib import Path

import pytest

from rllib_rise.errors import RunDirectoryError
from rllib_rise.experiments.run.run_directory import MetricsFile, RunDirectory


def test_an_existing_directory_is_refused(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    run.refuse_existing()
    run.open({"seed": 1})
    with pytest.raises(RunDirectoryError, match="--resume"):
        run.refuse_existing()
    assert run.read_config() == {"seed": 1}


def test_metrics_grow_columns_and_survive_a_torn_row(tmp_path: Path):
    run = RunDirectory(tmp_path)
    metrics = MetricsFile(run.metrics)
    metrics.append({"iteration": 1, "a": 1.5})
    metrics.append({"iteration": 2, "a": 2.5, "b": 7.0})
    with run.metrics.open("a") as stream:
        stream.write("3,4")
    assert run.read_metrics() == [
        {"iteration": 1, "a": 1.5, "b": None},
        {"iteration": 2, "a": 2.5, "b": 7.0},
    ]


def test_resuming_drops_the_rows_after_the_checkpoint(tmp_path: Path):
    run = RunDirectory(tmp_path)
    metrics = MetricsFile(run.metrics)
    for iteration in range(1, 6):
        metrics.append({"iteration": iteration})
    MetricsFile(run.metrics, keep_iterations=3).append({"iteration": 4, "new": 1})
    assert [row["iteration"] for row in run.read_metrics()] == [1, 2, 3, 4]


def test_resuming_drops_a_torn_row_that_looks_like_an_early_one(tmp_path: Path):
    run = RunDirectory(tmp_path)
    metrics = MetricsFile(run.metrics)
    for iteration in range(1, 13):
        metrics.append({"iteration": iteration, "a": 0.5})
    run.metrics.write_bytes(run.metrics.read_bytes()[: -len("2,0.5\r\n")])
    MetricsFile(run.metrics, keep_iterations=10)
    assert [row["iteration"] for row in run.read_metrics()] == list(range(1, 11))
