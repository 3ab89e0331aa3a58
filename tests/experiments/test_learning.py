"""What it is all for: with the bonus the agent sees more of the maze than without."""

from __future__ import annotations

from pathlib import Path

import pytest

from rllib_rise.experiments.compare import compare
from rllib_rise.experiments.schema import load_experiment

CONFIG = Path(__file__).parents[2] / "configs" / "maze.yaml"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_every_run_with_rise_covers_more_than_every_run_without(tmp_path: Path):
    experiment = load_experiment(CONFIG, ["stop.env_steps=40000"])
    summary = compare(
        experiment, tmp_path / "out", methods=["none", "rise"], seeds=3, max_concurrent=2
    )
    assert summary["improvement"]["rise"]["coverage"]["estimate"] == 1.0
    coverage = {m: v["figures"]["coverage"]["estimate"] for m, v in summary["methods"].items()}
    assert coverage["rise"] > coverage["none"] + 0.1
