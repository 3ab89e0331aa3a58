"""Runs whose processes die, and runs that are asked to end."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import yaml
from command_line import finish, start
from test_cli import SMALL

pytestmark = pytest.mark.slow

# Long enough that it is still under way when it is looked at.
LONG = {**SMALL, "stop": {"env_steps": 12_000}}
LONG["intrinsic"] = {**SMALL["intrinsic"], "k": "auto", "warmup_steps": 128, "kappa": 1e-4}
RUN = Path("runs") / "long-rise-seed0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "long.yaml").write_text(yaml.safe_dump(LONG))
    return tmp_path


def rows(folder: Path) -> list[dict[str, str]]:
    path = folder / RUN / "metrics.csv"
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def wait_until(condition: Callable[[], object], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / RUN / "checkpoints").glob("iteration_*"))


def child(process: subprocess.Popen) -> psutil.Process:
    """The process that does the work."""
    (found,) = [
        one
        for one in psutil.Process(process.pid).children()
        if "rllib_rise.cli" in " ".join(one.cmdline())
    ]
    return found


def train(folder: Path, *options: str) -> subprocess.Popen:
    return start(folder, "train", "long.yaml", "--checkpoint-every", "5", *options)


def test_a_killed_run_goes_on_from_its_last_checkpoint(folder: Path, record_property):
    process = train(folder, "--restarts", "2")
    wait_until(lambda: len(rows(folder)) > 12)
    phase1 = (folder / RUN / "phase1.log").read_text()
    first = child(process)
    first.kill()
    wait_until(lambda: not first.is_running() or first.status() == psutil.STATUS_ZOMBIE)
    resumed_behind = int(checkpoints(folder)[-1].name.removeprefix("iteration_"))
    output = finish(process)
    assert "was killed by signal 9; it goes on from its last checkpoint (2 restarts left)" in output
    assert resumed_behind >= 5
    assert (folder / RUN / "phase1.log").read_text() == phase1  # it ran once
    found = rows(folder)
    assert [int(float(row["iteration"])) for row in found] == list(range(1, len(found) + 1))
    assert len({row["rise_k"] for row in found}) == 1
    for before, row in pairwise(found):  # the clock went on; Phase 1 is not in it
        t = float(before["env_steps"]) - 128
        assert float(row["intrinsic_lambda"]) == pytest.approx(0.1 * (1 - 1e-4) ** t, rel=1e-6)
    outcome = "with --restarts goes on from the last checkpoint, without a second Phase 1"
    record_property("fault", {"fault": "the run's process is killed", "outcome": outcome})


def test_one_of_two_learners_dies_and_the_run_goes_on(folder: Path, record_property):
    """The other one does not die: it misses an answer, which looks like an error of the code."""
    process = train(folder, "--restarts", "1", "--set", "rllib.num_learners=2")
    wait_until(lambda: len(rows(folder)) > 8)
    learners = [
        one
        for one in psutil.Process(child(process).pid).children(recursive=True)
        if "ray::_WrappedExecutable" in " ".join(one.cmdline())
    ]
    assert len(learners) == 2
    learners[1].kill()
    output = finish(process)
    assert "has lost a process; it goes on from its last checkpoint (1 restarts left)" in output
    found = rows(folder)
    assert [int(float(row["iteration"])) for row in found] == list(range(1, len(found) + 1))
    outcome = "with --restarts goes on from the last checkpoint"
    record_property("fault", {"fault": "a learner is killed", "outcome": outcome})


def test_restarts_are_bounded(folder: Path):
    process = train(folder, "--restarts", "1")
    for more in (6, 12):
        wait_until(lambda more=more: len(rows(folder)) > more)
        child(process).kill()
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 128 + signal.SIGKILL
    assert output.count("it goes on from its last checkpoint") == 1


def test_an_error_of_the_settings_is_not_tried_again(folder: Path):
    process = train(folder, "--restarts", "3", "--set", "alpha=7")
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 2
    assert output.count("error:") == 1


@pytest.mark.parametrize("restarts", ["0", "2"])
def test_a_request_to_end_is_answered_by_a_checkpoint(folder: Path, restarts: str, record_property):
    process = train(folder, "--restarts", restarts, "--checkpoint-every", "100000")
    wait_until(lambda: len(rows(folder)) > 3)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 130, output
    assert "goes on" in output
    saved = int(checkpoints(folder)[-1].name.removeprefix("iteration_"))
    assert saved == len(rows(folder)) > 3
    if restarts == "0":
        finish(train(folder, "--resume"))
        assert (folder / RUN / "result.json").exists()
        outcome = "writes a checkpoint and ends; --resume goes on"
        record_property("fault", {"fault": "Ctrl-C, or SIGTERM", "outcome": outcome})


def test_nobody_trains_on_when_the_one_who_restarts_is_gone(folder: Path):
    process = train(folder, "--restarts", "2")
    wait_until(lambda: len(rows(folder)) > 3)
    worker = child(process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=240)
    wait_until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, 30)
