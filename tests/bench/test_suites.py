"""`rise bench`: its parts, and the files that it leaves."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import refused
from scipy import stats

from rllib_rise.bench.backends import compared
from rllib_rise.bench.contestants import Entry, contest
from rllib_rise.bench.growth import growth
from rllib_rise.bench.measure import STARTS
from rllib_rise.bench.suites import SUITES, run_suites, skipped, summary
from rllib_rise.bench.trainers import TASKS
from rllib_rise.bench.training import NO_BONUS, training_figures
from rllib_rise.errors import ConfigError, RiseError

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_the_bonus_alone_is_measured_and_written(tmp_path: Path):
    found = run_suites(["bonus"], tmp_path, form="quick", threads=1, on_progress=lambda line: None)
    assert found == json.loads((tmp_path / "summary.json").read_text())
    assert {"figure", "ratio", "low", "high", "goal", "holds"} == set(found[0])
    assert all(0 < one["low"] <= one["ratio"] <= one["high"] for one in found)
    result = json.loads((tmp_path / "bonus.json").read_text())
    assert result["threads"] == 1
    assert result["machine"]["packages"]["torch"]
    assert "rllte-core" in result["machine"]["packages"]
    assert result["command"] == f"rise bench --only bonus --threads 1 --out {tmp_path}"
    if find_spec("rllte") is None:
        assert "rllte-core" in skipped(tmp_path)[0]


def test_an_unknown_part_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="'bonuses' is no part of the benchmark: bonus, growth"):
        run_suites(["bonuses"], tmp_path, form="quick", threads=1, on_progress=print)


def test_results_of_other_conditions_do_not_stand_side_by_side(tmp_path: Path):
    other = {"part": "growth", "form": "quick", "threads": 2, "figures": [], "measured": {}}
    (tmp_path / "growth.json").write_text(json.dumps(other))
    with pytest.raises(ConfigError, match="growth in the quick form with 2 threads"):
        run_suites(["bonus"], tmp_path, form="quick", threads=1, on_progress=print)
    assert not (tmp_path / "bonus.json").exists()


@pytest.mark.slow
def test_memory_grows_less_than_the_square_of_the_batch():
    [figure], measured = growth(1, "quick", lambda line: None)
    n = max(row["n"] for row in measured["rows"])
    most = max(max(row["megabytes"]) for row in measured["rows"] if row["n"] == n)
    assert figure.ratio == pytest.approx(most / 1000, rel=0.5)
    assert most < n * n * 4 / 1e6 / 20  # a twentieth of a matrix of all distances


def test_backends_are_measured_in_turn_and_over_torch():
    pytest.importorskip("faiss")
    figures, measured = compared("cpu", [(64, 3), (2048, 3)], 1, 6, lambda line: None)
    few, many = (row["seconds"] for row in measured["rows"])
    assert list(few) == ["cpu: torch", "cpu: torch+faiss", "cpu: faiss"]
    assert all(many[name] > seconds for name, seconds in few.items())
    assert [one.figure for one in figures[:2]] == [
        f"64 x 3: cpu: {name}, its time over that of torch on cpu"
        for name in ("torch+faiss", "faiss")
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_its_part_says_so_and_nothing_else_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    told = refused(tmp_path, monkeypatch, capsys, "bench", "--gpu")
    assert "CUDA device, and torch sees none" in told
    assert "points" not in told
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_measured(tmp_path: Path):
    found = run_suites(["gpu"], tmp_path, form="quick", threads=1, on_progress=lambda line: None)
    assert any("cpu: auto" in one["figure"] for one in found)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_contestants_train_in_processes_of_their_own():
    entries = {
        "none": Entry("Hopper", changes=NO_BONUS),
        "rise": Entry("Hopper", changes={"intrinsic.k": 5}),
    }
    with contest(entries, threads=1) as contestants:
        told = {}
        for name, one in contestants.items():
            one.iterate()
            told[name] = one.figures()
    assert told["rise"]["intrinsic_seconds"] > 0
    assert "intrinsic_seconds" not in told["none"]
    assert all(one["peak_megabytes"] > 0 for one in told.values())


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_what_a_contestant_fails_with_is_told():
    with (
        pytest.raises(RiseError, match=r"ConfigError.*alpha"),
        contest({"bad": Entry("Hopper", changes={"intrinsic.alpha": 3})}, threads=1),
    ):
        pass


def test_the_committed_summary_is_that_of_the_committed_results():
    assert json.loads((RESULTS / "summary.json").read_text()) == summary(RESULTS)
    assert not skipped(RESULTS)
    machines = []
    for name in SUITES:
        result = json.loads((RESULTS / f"{name}.json").read_text())
        assert result["form"] == "full"
        assert result["command"] == f"rise bench --full --only {name} --threads 1"
        result["machine"].pop("commit")  # which each part changes: its results are in it
        machines.append(result["machine"])
    assert all(machine == machines[0] for machine in machines)


def test_committed_ratios_are_those_of_the_committed_seconds():
    result = json.loads((RESULTS / "training.json").read_text())
    found = []
    for task in TASKS:
        seconds = result["measured"][task]["seconds"]
        assert all(len(starts) == STARTS["full"] for starts in seconds.values())
        found += [figure.as_json() for figure in training_figures(task, seconds)]
        pairs = np.array(seconds["RISE-PPO"]) / np.array(seconds["PPO"])
        assert found[-3]["ratio"] == pytest.approx(stats.gmean(np.median(pairs, axis=1)))
    assert result["figures"] == found
