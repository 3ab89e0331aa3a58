"""`rise tune`: trials, their results, and what happens when the driver dies."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import faults_for_tests
import pytest
import torch
import yaml
from command_line import finish, rise, start
from ray import tune
from safetensors.torch import load_file

from rllib_rise.experiments.progress import RunProgress
from rllib_rise.experiments.sweep.run import _SNAPSHOT_SECONDS, _optuna, run_sweep
from rllib_rise.experiments.sweep.schema import load_sweep
from rllib_rise.experiments.sweep.trial import SweepTrial

pytestmark = pytest.mark.slow

EXPERIMENT: dict[str, Any] = {
    "env": {"id": "rise/Maze-v0", "size": 5, "max_steps": 30},
    "stop": {"env_steps": 1024},
    "rllib": {
        "num_env_runners": 0,
        "num_envs_per_env_runner": 2,
        "train_batch_size_per_learner": 128,
        "minibatch_size": 64,
        "num_epochs": 1,
        "model_config": {"fcnet_hiddens": [16]},
    },
    "intrinsic": {"method": "rise", "lambda_0": 0.1, "k": "auto", "warmup_steps": 200},
}
IMAGES: dict[str, Any] = {
    "env": {"id": "rise/Maze-v0", "size": 5, "observation": "image", "image_size": 15},
    "stop": {"env_steps": 700},
    "rllib": {
        **EXPERIMENT["rllib"],
        "model_config": {"conv_filters": [[8, 3, 2], [8, 3, 2]]},
    },
    "intrinsic": {"method": "rise", "k": "auto", "warmup_steps": 200, "vae_epochs": 2},
}


def written(folder: Path, search: dict[str, Any], **changes: Any) -> None:
    data = {**EXPERIMENT, **changes, "search": search}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(data))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def abouts(out: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(out.glob("runs/*/trial.json"))]


def test_a_grid_over_seeds_shares_the_fits_of_phase_1(tmp_path: Path):
    space = {"lambda_0": {"grid": [0.01, 0.1]}, "kappa": {"uniform": [0, 0.001]}}
    written(tmp_path, {"space": space, "seeds": 2, "metric": "coverage"})
    done = rise(tmp_path, "tune", "sweep.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "runs" / "tune-sweep"
    trials = rows(out / "trials.csv")
    assert sorted((t["lambda_0"], t["seed"]) for t in trials) == [
        ("0.01", "0"), ("0.01", "1"), ("0.1", "0"), ("0.1", "1"),
    ]  # fmt: skip
    assert len({trial["kappa"] for trial in trials}) == 1  # the same draw for every seed
    assert {trial["state"] for trial in trials} == {"done"}
    # Every seed collects observations of its own: one fit for each, and not for every trial.
    assert len(list(out.glob("phase1-cache/*.safetensors"))) == 2
    settings = rows(out / "settings.csv")
    assert [setting["finished"] for setting in settings] == ["2", "2"]
    assert "response_lambda_0" in (out / "report.html").read_text()
    assert list(out.glob("tune/*/events.out.tfevents.*"))  # TensorBoard's files

    best = rise(tmp_path, "train", str(out / "best.yaml"), "--out", "best")
    assert best.returncode == 0, best.stdout + best.stderr
    chosen = yaml.safe_load((tmp_path / "best" / "config.yaml").read_text())["intrinsic"]
    assert f"{chosen['lambda_0']:g}" == settings[0]["lambda_0"]


def test_trials_share_one_fit_which_is_that_of_a_run_of_its_own(tmp_path: Path):
    space = {"alpha": {"grid": [0.1, 0.6]}, "lambda_0": {"grid": [0.01, 0.1]}}
    written(tmp_path, {"space": space, "seeds": 1, "metric": "coverage"}, **IMAGES)
    done = rise(tmp_path, "tune", "sweep.yaml", "--max-concurrent", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "runs" / "tune-sweep"
    reports = [json.loads(path.read_text()) for path in sorted(out.glob("runs/*/phase1.json"))]
    assert sorted(report["cached"] for report in reports) == [False, True, True, True]
    assert len(list(out.glob("phase1-cache/*.safetensors"))) == 1
    pids = {rows(path)[-1]["pid"] for path in out.glob("tune/*/progress.csv")}
    assert len(pids) == 1  # a process goes from one trial to the next

    # The last trial, in a used process and with another's fit, against a fresh run without a cache.
    trial = sorted(out.glob("runs/*/"))[-1]
    (tmp_path / "alone.yaml").write_text((trial / "config.yaml").read_text())
    alone = rise(tmp_path, "train", "alone.yaml", "--out", "elsewhere/alone")
    assert alone.returncode == 0, alone.stdout + alone.stderr
    run = tmp_path / "elsewhere" / "alone"
    assert not json.loads((run / "phase1.json").read_text())["cached"]
    own = load_file(run / "encoder.safetensors")
    shared = [load_file(path) for path in out.glob("runs/*/encoder.safetensors")]
    assert len(shared) == 4
    for tensors in shared:
        assert tensors.keys() == own.keys()
        assert all(torch.equal(tensor, own[name]) for name, tensor in tensors.items())
    columns = ("env_steps", "rise_k", "intrinsic_reward_mean", "policy_loss", "coverage")
    there, here = (
        [[row[column] for column in columns] for row in rows(folder / "metrics.csv")]
        for folder in (trial, run)
    )
    assert there == here


@pytest.mark.usefixtures("ray_cluster")
def test_trials_with_env_runners_are_packed_as_their_shares_say(tmp_path: Path):
    shares = ("num_cpus_per_env_runner", "num_cpus_per_learner", "num_cpus_for_main_process")
    rllib = {**EXPERIMENT["rllib"], "num_env_runners": 1, **dict.fromkeys(shares, 0.5)}
    space = {"lambda_0": {"grid": [0.01, 0.02, 0.05, 0.1]}}
    written(tmp_path, {"space": space, "seeds": 1}, rllib=rllib, stop={"env_steps": 10_000})
    seen: list[list[RunProgress]] = []
    sweep = load_sweep(tmp_path / "sweep.yaml", ["k=3"])
    run_sweep(sweep, tmp_path / "out", on_progress=seen.append)
    assert [progress.state for progress in seen[-1]] == ["done"] * 4
    # Ray has 4 CPUs here: with a whole one for each of its processes, two trials would fill them.
    assert max(sum(p.state == "running" for p in progress) for progress in seen) > 2


def test_after_a_killed_driver_trials_go_on_and_finished_ones_stay(tmp_path: Path):
    changes = {
        "stop": {"env_steps": 150_000},
        # Longer than the first iteration: there is no return yet in its results.
        "env": {"id": "rise/Maze-v0", "size": 10, "max_steps": 200},
    }
    written(tmp_path, {"space": {"lambda_0": {"grid": [0.01, 0.1]}}, "seeds": 1}, **changes)
    process = start(tmp_path, "tune", "sweep.yaml", "--max-concurrent", "1")
    out = tmp_path / "runs" / "tune-sweep"
    # One is done, and the next has had a checkpoint for so long that Tune must have saved that.
    deadline, since = time.monotonic() + 900, float("inf")
    while time.monotonic() - since < 1.5 * float(_SNAPSHOT_SECONDS):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        if _finished(out) and since == float("inf") and _has_checkpoint(out):
            since = time.monotonic()
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    finished = {path: path.stat().st_mtime_ns for path in _finished(out)}
    assert len(finished) == 1

    finish(start(tmp_path, "tune", "sweep.yaml", "--max-concurrent", "1", "--resume"))
    assert len(_finished(out)) == 2
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    restored = [about["restored"] for about in abouts(out)]
    assert sum(map(bool, restored)) == 1
    assert max(restored)[0] > 1
    for folder in out.glob("runs/*/"):
        iterations = [int(row["iteration"]) for row in rows(folder / "metrics.csv")]
        assert iterations == list(range(1, len(iterations) + 1))


def _finished(out: Path) -> list[Path]:
    return sorted(out.glob("runs/*/result.json"))


def _has_checkpoint(out: Path) -> bool:
    """Whether a trial that is not finished has one."""
    unfinished = [path for path in out.glob("runs/*/") if not (path / "result.json").exists()]
    return any(list((out / "tune" / run.name).glob("checkpoint_*")) for run in unfinished)


def test_ctrl_c_ends_a_sweep_that_can_go_on(tmp_path: Path):
    search = {"space": {"lambda_0": {"grid": [0.01, 0.1]}}, "seeds": 2}
    written(tmp_path, search, stop={"env_steps": 60_000})
    process = start(tmp_path, "tune", "sweep.yaml", "--set", "k=3", "--max-concurrent", "1")
    out = tmp_path / "runs" / "tune-sweep"
    while not list(out.glob("runs/*/metrics.csv")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=900)
    assert process.returncode == 130, told
    assert "interrupted; with --resume it goes on" in told
    assert not (out / "best.yaml").exists()


def test_trials_that_fail_do_not_cost_the_others_their_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "fault").touch()
    monkeypatch.setenv(faults_for_tests.VARIABLE, str(tmp_path / "fault"))
    failing = "faults_for_tests:FailingFit"
    search = {"space": {"method": {"grid": ["rise", failing]}}, "seeds": 1, "metric": "coverage"}
    own = {method: {"k": "auto", "warmup_steps": 200} for method in ("rise", failing)}
    written(tmp_path, search, methods=own)
    done = rise(tmp_path, "tune", "sweep.yaml")
    told = done.stdout + done.stderr
    assert done.returncode == 2, told
    assert "1 of 2 trials failed" in told
    assert "the fit of Phase 1 failed with RuntimeError: out of memory" in told
    out = tmp_path / "runs" / "tune-sweep"
    assert [trial["state"] for trial in rows(out / "trials.csv")] == ["done"]
    assert (out / "best.yaml").exists()
    assert (out / "report.html").exists()


@pytest.mark.usefixtures("ray_cluster")
def test_a_process_that_is_not_used_after_all_leaves_the_trial_to_another(tmp_path: Path):
    written(tmp_path, {"space": {"lambda_0": {"grid": [0.01, 0.1]}}, "seeds": 1})
    sweep, out = load_sweep(tmp_path / "sweep.yaml", ["k=3"]), tmp_path / "out"
    out.mkdir()
    (out / "sweep.json").write_text("{}")
    make = tune.with_parameters(SweepTrial, sweep=sweep.as_data(), out=str(out))
    unused, used = (make(config={"intrinsic.lambda_0": 0.1, "seed": 0}) for _ in range(2))
    assert not (out / "runs").exists()
    while not used.train()["done"]:
        pass
    (result,) = out.glob("runs/*/result.json")
    before = result.stat().st_mtime_ns
    assert unused.train()["done"]
    assert result.stat().st_mtime_ns == before
    unused.stop()
    used.stop()
    assert result.exists()


def test_asha_ends_bad_trials_early(tmp_path: Path):
    search = {
        "space": {"rllib.lr": {"grid": [0.0, 0.001, 0.003, 0.01]}},
        "seeds": 2,
        "metric": "coverage",
        "scheduler": "asha",
        "patience": 0.25,
    }
    written(tmp_path, search, stop={"env_steps": 4096})
    done = rise(tmp_path, "tune", "sweep.yaml", "--set", "k=3")
    assert done.returncode == 0, done.stdout + done.stderr
    trials = rows(tmp_path / "runs" / "tune-sweep" / "trials.csv")
    stopped = [trial for trial in trials if trial["state"] == "stopped"]
    assert 0 < len(stopped) < len(trials) == 8
    assert all(1024 <= int(trial["env_steps"]) < 4096 for trial in stopped)


def test_pbt_changes_the_weight_without_a_second_phase_1(tmp_path: Path):
    search = {
        "space": {"lambda_0": {"log_uniform": [0.05, 0.1]}},
        "samples": 2,
        "seeds": 2,
        "metric": "coverage",
        "scheduler": "pbt",
        "patience": 0.2,
    }
    written(tmp_path, search, stop={"env_steps": 2560})
    done = rise(tmp_path, "tune", "sweep.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "runs" / "tune-sweep"
    copied = [about for about in abouts(out) if about["restored"]]
    assert copied
    tables = [rows(path) for path in sorted(out.glob("runs/*/metrics.csv"))]
    assert any(len({row["intrinsic_lambda"] for row in table}) > 1 for table in tables)
    # What it makes of a value by multiplication stays in the space.
    weights = [float(row["intrinsic_lambda"]) for table in tables for row in table]
    assert 0.05 <= min(weights) < max(weights) <= 0.1
    # A trial that copies another goes on with that one's encoder and k: there are those of the two
    # fits, one for each seed, and no others.
    assert len(list(out.glob("phase1-cache/*.safetensors"))) == 2
    assert len({row["rise_k"] for table in tables for row in table}) <= 2
    for about, table in zip(abouts(out), tables, strict=True):
        assert len({row["intrinsic_warmup_steps"] for row in table}) == 1, about
        steps = [int(row["env_steps"]) for row in table]
        assert {b - a for a, b in itertools.pairwise(steps)} == {128}, about


def test_optuna_proposes_and_every_proposal_is_repeated(tmp_path: Path):
    pytest.importorskip("optuna")
    search = {
        "space": {"lambda_0": {"log_uniform": [0.001, 0.1]}},
        "samples": 3,
        "seeds": 2,
        "metric": "coverage",
        "searcher": "optuna",
    }
    written(tmp_path, search)
    done = rise(tmp_path, "tune", "sweep.yaml", "--set", "k=3")
    assert done.returncode == 0, done.stdout + done.stderr
    settings = rows(tmp_path / "runs" / "tune-sweep" / "settings.csv")
    assert [setting["finished"] for setting in settings] == ["2", "2", "2"]
    assert {about["seed"] for about in abouts(tmp_path / "runs" / "tune-sweep")} == {0, 1}


def test_optuna_looks_for_the_largest():
    pytest.importorskip("optuna")
    searcher = _optuna("coverage", seed=0)
    searcher.set_search_properties("coverage", "max", {"lambda_0": tune.uniform(0.0, 1.0)})
    proposed = []
    for number in range(60):
        value = searcher.suggest(str(number))["lambda_0"]
        searcher.on_trial_complete(str(number), {"coverage": 1 - abs(value - 0.8)})
        proposed.append(abs(value - 0.8))
    assert sum(proposed[-20:]) < 0.5 * sum(proposed[:20])
