"""Phase 1 from the command line: progress, budget, kill, cache."""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import yaml
from command_line import finish, start

from rllib_rise.encoders import load_encoder

IMAGE_MAZE = {
    "env": {"id": "rise/Maze-v0", "size": 5, "observation": "image", "image_size": 15},
    "stop": {"env_steps": 600},
    "rllib": {
        "num_env_runners": 0,
        "num_envs_per_env_runner": 4,
        "train_batch_size_per_learner": 128,
        "minibatch_size": 64,
        "num_epochs": 1,
        "model_config": {"conv_filters": [[8, 3, 2], [8, 3, 2]]},
    },
    "intrinsic": {"method": "rise", "warmup_steps": 200, "vae_epochs": 2},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images.yaml").write_text(yaml.safe_dump(IMAGE_MAZE))
    return tmp_path


def wait_for(path: Path, text: str) -> None:
    for _ in range(1200):
        if path.exists() and text in path.read_text():
            return
        time.sleep(0.1)
    raise AssertionError(f"{text!r} never appeared in {path}")


def phase1(run: Path) -> dict:
    return json.loads((run / "phase1.json").read_text())


def test_killed_in_the_middle_it_starts_again_cleanly(folder: Path):
    run = folder / "runs" / "one"
    arguments = ("train", "images.yaml", "--out", str(run))
    # So many epochs that it is still at it when the signal comes.
    killed = start(folder, *arguments, "--set", "vae_epochs=1000")
    wait_for(run / "phase1.log", "epoch 1 ")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not list((run / "checkpoints").glob("iteration_*"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["intrinsic"]["vae_epochs"] = 2  # or the test would never end
    (run / "config.yaml").write_text(yaml.safe_dump(config))

    output = finish(start(folder, *arguments, "--resume"))

    assert "Phase 1: VAE: epoch 2 of 2" in output
    assert phase1(run)["modules"]["default_policy"]["observations"] == 200
    assert not list((folder / "runs" / "phase1-cache").glob("*.partial"))
    with (run / "metrics.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    # Phase 1's steps are in the budget: what was taken, which may be a little more than asked for.
    warmup = phase1(run)["env_steps"]
    assert 200 <= warmup < 240
    trained = [float(row["env_steps"]) - warmup for row in rows]
    assert trained == pytest.approx([128, 256, 384, 512], abs=10)
    assert {float(row["intrinsic_warmup_steps"]) for row in rows} == {warmup}
    result = json.loads((run / "result.json").read_text())
    assert result["env_steps"] == float(rows[-1]["env_steps"])
    assert result["warmup_steps"] == warmup
    assert (run / "encoder.safetensors").exists()


@pytest.mark.slow
def test_there_is_a_checkpoint_right_after_phase_1(folder: Path):
    run = folder / "runs" / "one"
    arguments = ("train", "images.yaml", "--out", str(run), "--set", "stop.env_steps=100000")
    killed = start(folder, *arguments)
    for _ in range(1200):
        if (run / "checkpoints" / "iteration_000000").exists():
            break
        time.sleep(0.1)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    first = (run / "phase1.json").stat().st_mtime_ns

    resumed = finish(start(folder, *arguments[:-1], "stop.env_steps=600", "--resume"))

    assert "Phase 1:" not in resumed
    assert (run / "phase1.json").stat().st_mtime_ns == first
    result = json.loads((run / "result.json").read_text())
    assert result["env_steps"] == pytest.approx(phase1(run)["env_steps"] + 512, abs=10)


@pytest.mark.slow
def test_runs_that_race_for_the_same_fit_make_one(folder: Path):
    runs = {alpha: folder / "runs" / f"alpha{alpha}" for alpha in (0.1, 0.6)}
    started = [
        start(folder, "train", "images.yaml", "--out", str(run), "--set", f"alpha={alpha}")
        for alpha, run in runs.items()
    ]
    for process in started:
        finish(process)
    reports = [phase1(run) for run in runs.values()]
    assert sorted(report["cached"] for report in reports) == [False, True]
    assert len(list((folder / "runs" / "phase1-cache").glob("*.safetensors"))) == 1
    one, other = (
        load_encoder(run / "encoder.safetensors", (15, 15, 3)).state_dict() for run in runs.values()
    )
    assert all(torch.equal(other[name], tensor) for name, tensor in one.items())
    for alpha, report in zip(runs, reports, strict=True):
        assert report["modules"]["default_policy"]["alpha"] == alpha


def test_a_budget_that_phase_1_would_eat_up_is_refused(folder: Path):
    process = start(folder, "train", "images.yaml", "--set", "stop.env_steps=200")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "Phase 1 takes 200 steps" in output
    assert not list((folder / "runs").glob("images*"))
