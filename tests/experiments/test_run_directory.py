from __future__ import annotations

from pathlib import Path

import pytest

from rllib_rise.errors import RunDirectoryError
from rllib_rise.experiments.run_directory import MetricsFile, RunDirectory


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


def test_a_checkpoint_that_failed_half_way_is_never_chosen(tmp_path: Path):
    run = RunDirectory(tmp_path)
    run.checkpoints.mkdir()
    run.add_checkpoint(1, lambda folder: (folder / "x").write_text("1"), keep=2)

    def fail(folder: Path) -> None:
        (folder / "x").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run.add_checkpoint(2, fail, keep=2)
    assert run.latest_checkpoint() == run.checkpoints / "iteration_000001"
    run.add_checkpoint(3, lambda folder: None, keep=2)
    run.add_checkpoint(4, lambda folder: None, keep=2)
    assert [path.name for path in sorted(run.checkpoints.iterdir())] == [
        "iteration_000003",
        "iteration_000004",
    ]
