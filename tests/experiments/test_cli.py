"""The command line as a user meets it, with real training on a small maze."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_line import refused, rise

from rllib_rise import cli

SMALL = {
    "env": {"id": "rise/Maze-v0", "size": 5, "max_steps": 30},
    "stop": {"env_steps": 512},
    "rllib": {
        "num_env_runners": 0,
        "num_envs_per_env_runner": 2,
        "train_batch_size_per_learner": 128,
        "minibatch_size": 64,
        "num_epochs": 1,
        "model_config": {"fcnet_hiddens": [16]},
    },
    "intrinsic": {"method": "rise", "lambda_0": 0.1, "k": 3},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))
    return tmp_path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_train_refuse_resume_evaluate_report(folder: Path):
    done = rise(folder, "train", "small.yaml", "--set", "alpha=0.5", "--checkpoint-every", "2")
    assert done.returncode == 0, done.stderr
    run = folder / "runs" / "small-rise-seed0"
    for name in ("config.yaml", "versions.json", "metrics.csv", "result.json", "report.html"):
        assert (run / name).exists(), name
    assert list(run.glob("events.out.tfevents.*"))
    assert yaml.safe_load((run / "config.yaml").read_text())["intrinsic"]["alpha"] == 0.5
    metrics = rows(run / "metrics.csv")
    assert [int(float(row["env_steps"])) for row in metrics] == [128, 256, 384, 512]
    assert float(metrics[-1]["intrinsic_lambda"]) == 0.1

    refused = rise(folder, "train", "small.yaml", "--set", "alpha=0.5")
    assert refused.returncode == 2
    assert "--resume" in refused.stdout
    assert "Traceback" not in refused.stdout + refused.stderr

    changed = rise(folder, "train", "small.yaml", "--set", "alpha=0.1", "--resume")
    assert changed.returncode == 2
    assert "intrinsic" in changed.stdout

    # Two iterations more, on top of the checkpoint that is there.
    longer = ["--set", "alpha=0.5", "--set", "stop.env_steps=768", "--resume"]
    resumed = rise(folder, "train", "small.yaml", *longer)
    assert resumed.returncode == 0, resumed.stderr
    metrics = rows(run / "metrics.csv")
    assert [int(float(row["iteration"])) for row in metrics] == [1, 2, 3, 4, 5, 6]
    assert int(float(metrics[-1]["env_steps"])) == 768
    assert yaml.safe_load((run / "config.yaml").read_text())["stop"]["env_steps"] == 768
    with np.load(run / "exploration.npz") as explored:
        assert explored["visit_counts"].sum() >= 768

    evaluated = rise(folder, "evaluate", str(run), "--episodes", "3")
    assert evaluated.returncode == 0, evaluated.stderr
    assert re.search(r"return_mean\s+[01]", evaluated.stdout)

    shutil.rmtree(run / "report_data", ignore_errors=True)
    (run / "report.html").unlink()
    reported = rise(folder, "report", str(run))
    assert reported.returncode == 0, reported.stderr
    assert (run / "report.html").exists()


def test_compare_runs_side_by_side_and_resumes(folder: Path):
    arguments = ["compare", "small.yaml", "--methods", "none,rise", "--seeds", "2"]
    done = rise(folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert "does not name" not in done.stdout
    out = folder / "runs" / "compare-small"
    summary = json.loads((out / "summary.json").read_text())
    assert list(summary["methods"]) == ["none", "rise"]
    assert summary["methods"]["rise"]["runs"] == 2
    assert set(summary["improvement"]["rise"]) >= {"coverage"}
    runs = rows(out / "runs.csv")
    assert [(row["method"], row["seed"]) for row in runs] == [
        ("none", "0"), ("none", "1"), ("rise", "0"), ("rise", "1"),
    ]  # fmt: skip
    assert {row["env_steps"] for row in runs} == {"512"}
    assert "rise" in done.stdout
    assert (out / "report.html").exists()

    seeds = [
        yaml.safe_load((out / f"rise/seed_{s}/config.yaml").read_text())["seed"] for s in (0, 1)
    ]
    assert seeds == [0, 1]
    one, other = (rows(out / "rise" / f"seed_{s}" / "metrics.csv") for s in (0, 1))
    assert one[-1]["policy_loss"] != other[-1]["policy_loss"]

    assert rise(folder, *arguments).returncode == 2
    untouched = (out / "none" / "seed_0" / "metrics.csv").stat().st_mtime_ns
    shutil.rmtree(out / "rise" / "seed_1")
    again = rise(folder, *arguments, "--resume")
    assert again.returncode == 0, again.stderr
    assert (out / "rise" / "seed_1" / "result.json").exists()
    assert (out / "none" / "seed_0" / "metrics.csv").stat().st_mtime_ns == untouched

    more = rise(folder, "compare", "small.yaml", "--methods", "count", "--seeds", "1", "--resume")
    assert "small.yaml does not name count: it runs with its default settings" in more.stdout


@pytest.mark.parametrize(
    ("value", "text"), [(150_016, "150,016"), (24128.4, "24,128"), (0.29341, "0.2934"), (-5, "-5")]
)
def test_numbers_are_printed_as_people_write_them(value: float, text: str):
    assert cli._number(value) == text


def test_a_bonus_defined_outside_the_package_trains(folder: Path):
    page = (Path(__file__).parents[2] / "docs" / "bonuses.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    (folder / "my_bonus.py").write_text(code.group(1))
    done = rise(
        folder, "train", "small.yaml",
        "--set", "method=my_bonus:GridCount", "--set", "cell=0.5", "--set", "stop.env_steps=256",
        "--set", "rllib.num_learners=1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    run = folder / "runs" / "small-my_bonus.GridCount-seed0"
    last = rows(run / "metrics.csv")[-1]
    assert float(last["grid_cells"]) > 1
    assert 0 < float(last["intrinsic_reward_mean"]) < 1


def test_ctrl_c_saves_and_resume_goes_on(folder: Path):
    command = [sys.executable, "-m", "rllib_rise.cli", "train", "small.yaml"]
    command += ["--set", "stop.env_steps=100000"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    run = folder / "runs" / "small-rise-seed0"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (
        (run / "metrics.csv").exists() and len(rows(run / "metrics.csv")) >= 3
    ):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "--resume" in output
    done = len(rows(run / "metrics.csv"))
    (checkpoint,) = (run / "checkpoints").iterdir()
    assert checkpoint.name == f"iteration_{done:06d}"
    stop = f"stop.env_steps={128 * (done + 1)}"
    assert rise(folder, "train", "small.yaml", "--set", stop, "--resume").returncode == 0
    iterations = [int(float(row["iteration"])) for row in rows(run / "metrics.csv")]
    assert iterations == list(range(1, done + 2))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "nowhere.yaml"), "does not exist"),
        (
            ("train", "small.yaml", "--set", "alpah=1"),
            "not a setting of the method 'rise'; did you mean 'alpha'",
        ),
        (
            ("train", "small.yaml", "--set", "method=sum"),
            "parts is missing in the method 'sum': The",
        ),
        (("train", "small.yaml", "--set", "alpha=1.5"), "box-cox"),
        (("train", "small.yaml", "--set", "k=128"), "k=128"),
        (("train", "small.yaml", "--set", "env.sise=5"), "sise"),
        (("train", "small.yaml", "--set", "env.size=1"), "size=1"),
        (("train",), "Missing argument"),
        (("bench", "--gpu", "--only", "bonus"), "leave --only out"),
        (("evaluate", "."), "neither a run directory nor a checkpoint"),
        (("report", "."), "."),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing_behind(
    folder: Path, monkeypatch, capsys, arguments, words: str
):
    assert words in refused(folder, monkeypatch, capsys, *arguments)
    assert not (folder / "runs").exists()


def test_a_mistake_ends_the_command_with_a_sentence(folder: Path):
    failed = rise(folder, "train", "small.yaml", "--set", "alpha=1.5")
    assert failed.returncode == 2
    assert failed.stdout.startswith("error: small.yaml: alpha=1.5 with form=")
    assert "Traceback" not in failed.stdout + failed.stderr
