"""Checkpoints are whole or left out, and a full disk costs the newest one only."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import environment, rise

from rllib_rise import __version__
from rllib_rise.errors import CheckpointError, LostProcessError
from rllib_rise.experiments.evaluate import find_checkpoint
from rllib_rise.experiments.run.checkpoints import MANIFEST, verify, warn_of_strangers
from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.experiments.run.train import train
from rllib_rise.experiments.run.training import Training
from rllib_rise.experiments.schema import parse_experiment

SMALL = {
    "env": {"id": "rise/Maze-v0", "size": 6, "max_steps": 20},
    "stop": {"env_steps": 256},
    "rllib": {
        "num_env_runners": 0,
        "num_envs_per_env_runner": 2,
        "train_batch_size_per_learner": 64,
        "minibatch_size": 32,
        "num_epochs": 1,
        "model_config": {"fcnet_hiddens": [8]},
    },
    "intrinsic": {"method": "rise", "k": 3, "encoder": "identity"},
}


def two_files(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "weights").write_bytes(bytes(range(256)) * 40)
    (folder / "progress.json").write_text("{}")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run with two checkpoints."""
    run = RunDirectory(tmp_path / "run")
    run.open({})
    for iteration in (10, 20):
        add(run, iteration)
    return run


def add(run: RunDirectory, iteration: int, keep: int = 2) -> Path:
    return run.add_checkpoint(iteration, two_files, env_steps=64 * iteration, keep=keep)


def names(run: RunDirectory) -> list[str]:
    return sorted(path.name for path in run.checkpoints.iterdir())


def test_the_manifest_says_what_was_written(run: RunDirectory):
    checkpoint = run.checkpoints / "iteration_000020"
    weights = (checkpoint / "inner" / "weights").read_bytes()
    assert json.loads((checkpoint / MANIFEST).read_text()) == {
        "format": 1,
        "rllib_rise": __version__,
        "iteration": 20,
        "env_steps": 1280,
        "files": {
            "inner/weights": {"size": 10240, "sha256": hashlib.sha256(weights).hexdigest()},
            "progress.json": {"size": 2, "sha256": hashlib.sha256(b"{}").hexdigest()},
        },
    }
    verify(checkpoint)
    assert run.latest_checkpoint() == checkpoint


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[5000] ^= 1
    file.write_bytes(content)


def _of_another_version(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 9}))


TEARS = [
    (MANIFEST, Path.unlink, "it has no MANIFEST.json"),
    (MANIFEST, lambda file: _cut(file) or _cut(file), "its MANIFEST.json is cut off or changed"),
    (MANIFEST, _of_another_version, "it has the format 9 of another version, this one reads 1"),
    ("inner/weights", Path.unlink, "inner/weights is missing"),
    ("inner/weights", _cut, "inner/weights has 10,239 bytes instead of 10,240"),
    ("inner/weights", _flip, "the content of inner/weights has changed"),
]


@pytest.mark.parametrize(("name", "tear", "why"), TEARS, ids=[why for *_, why in TEARS])
def test_a_torn_checkpoint_is_left_out_and_named(
    run: RunDirectory, caplog, name: str, tear: Callable[[Path], None], why: str
):
    older, newer = (run.checkpoints / name for name in names(run))
    tear(newer / name)
    assert run.latest_checkpoint() == older
    (record,) = caplog.records
    assert record.getMessage() == f"the checkpoint {newer} is torn and left out: {why}"
    assert find_checkpoint(run.path)[1] == older
    with pytest.raises(CheckpointError, match=f"iteration_000020 is torn: {why}"):
        find_checkpoint(newer)
    assert find_checkpoint(older)[1] == older


def test_where_all_are_torn_each_is_named(run: RunDirectory):
    for name in names(run):
        (run.checkpoints / name / "progress.json").unlink()
    with pytest.raises(
        CheckpointError, match=r"000020 \(.* missing\); .*000010.*begin the run anew"
    ):
        run.latest_checkpoint()


@pytest.mark.parametrize("keep", [1, 2])
def test_a_torn_checkpoint_never_pushes_a_whole_one_out(run: RunDirectory, keep: int):
    (run.checkpoints / "iteration_000020" / MANIFEST).unlink()
    run.go_on_from(run.checkpoints / "iteration_000010")
    assert names(run) == [".torn_iteration_000020", "iteration_000010"]
    added = add(run, 15, keep=keep)
    assert names(run) == ["iteration_000010", "iteration_000015"][-keep:]
    assert run.latest_checkpoint() == added


def test_a_torn_checkpoint_is_replaced_by_one_of_the_same_iteration(run: RunDirectory):
    (run.checkpoints / "iteration_000020" / MANIFEST).unlink()
    assert run.latest_checkpoint() == run.checkpoints / "iteration_000010"
    add(run, 20)
    assert run.latest_checkpoint() == run.checkpoints / "iteration_000020"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_while_writing_leaves_nothing_behind(run: RunDirectory, error):
    def fail(folder: Path) -> None:
        two_files(folder)
        raise error("half way")

    with pytest.raises(error, match="half way"):
        run.add_checkpoint(30, fail, env_steps=1, keep=1)
    assert names(run) == ["iteration_000010", "iteration_000020"]


def test_what_a_killed_process_left_is_removed_by_the_next_checkpoint(run: RunDirectory):
    two_files_of_the_dead = run.checkpoints / ".partial_iteration_000025"
    two_files_of_the_dead.mkdir()
    two_files(two_files_of_the_dead)
    assert run.latest_checkpoint() == run.checkpoints / "iteration_000020"
    add(run, 30)
    assert names(run) == ["iteration_000020", "iteration_000030"]


# Runs where files may not be larger than 200 kB, or on a disk that has room for three of 300 kB.
_FILLS = """
import resource, sys
from pathlib import Path
from rllib_rise.errors import CheckpointError
from rllib_rise.experiments.run.run_directory import RunDirectory

def write(size):
    def write(folder):
        (folder / "first").write_bytes(bytes(1000))
        (folder / "weights").write_bytes(bytes(size))
    return write

run = RunDirectory(Path(sys.argv[1]) / "run")
run.open({})
size = 300_000 if sys.argv[2] == "disk" else 100_000
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
for iteration in (1, 2, 3):
    run.add_checkpoint(iteration, write(size), env_steps=iteration, keep=3)
try:
    run.add_checkpoint(4, write(300_000), env_steps=4, keep=3)
except CheckpointError as error:
    print(error)
print(sorted(path.name for path in run.checkpoints.iterdir()), run.latest_checkpoint().name)
(run.checkpoints / "iteration_000001" / "weights").unlink()
print(run.add_checkpoint(5, write(1000), env_steps=5, keep=1).name)
print(run.latest_checkpoint().name)
"""


def mounts_allowed() -> bool:
    trial = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and not subprocess.run(trial, check=False).returncode


def on_small_disk(folder: Path, size: str, command: str, *words: str) -> str:
    """What a shell command says in whose eyes the folder is a disk of this size."""
    script = f"mount -t tmpfs -o size={size} tmpfs {folder} && {command}"
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script, "bash", *words],
        cwd=folder.parent,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("kind", "system_says"), [("disk", "No space left on device"), ("limit", "File too large")]
)
def test_no_room_for_a_checkpoint_leaves_those_before_it(tmp_path, kind: str, system_says: str):
    if kind == "disk":
        if not mounts_allowed():
            pytest.skip("needs root, and leave to mount")
        told = on_small_disk(
            tmp_path, "1m", 'exec "$@"', sys.executable, "-c", _FILLS, str(tmp_path), kind
        )
    else:
        told = subprocess.run(
            [sys.executable, "-c", _FILLS, str(tmp_path), kind],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    error, left, added, latest = told.splitlines()
    assert f"iteration_000004 could not be written: {system_says}. Those before it" in error
    assert "make room, then go on with --resume" in error
    kept = ["iteration_000001", "iteration_000002", "iteration_000003"]
    assert left == f"{kept} iteration_000003"
    assert added == latest == "iteration_000005"


@pytest.mark.slow
@pytest.mark.skipif(not mounts_allowed(), reason="needs root, and leave to mount")
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(tmp_path: Path, record_property):
    (tmp_path / "small.json").write_text(json.dumps(SMALL))
    disk = tmp_path / "disk"
    disk.mkdir()
    words = (sys.executable, "-m", "rllib_rise.cli", "train", "small.json", "--out", "disk/run")
    told = on_small_disk(
        disk,
        "300k",
        '! "$@" && mount -o remount,size=30m disk && ls -A disk/run/checkpoints && "$@" --resume',
        *(*words, "--checkpoint-every", "1"),
    )
    assert "No space left on device" in told
    assert "make room, then go on with --resume" in told
    assert "iteration_000001" in told
    assert ".partial" not in told
    assert "disk/run/report.html" in told
    outcome = "ends: No space left on device ... make room, then go on with --resume"
    record_property("fault", {"fault": "a full disk", "outcome": outcome})


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_learner_that_cannot_write_its_part_is_not_taken_for_one_that_did(tmp_path: Path):
    """RLlib notes the learner's error and goes on."""
    large = SMALL["rllib"] | {"num_learners": 1, "model_config": {"fcnet_hiddens": [256]}}
    experiment = parse_experiment(SMALL | {"rllib": large})
    run = RunDirectory(tmp_path / "run")
    training = Training(experiment, run, events=False)
    try:
        run.open(experiment.resolved())
        training.iterate()
        run.add_checkpoint(1, training.write, env_steps=64, keep=1)
        training._algorithm.learner_group.foreach_learner(
            lambda learner: resource.setrlimit(
                resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY)
            )
        )
        with pytest.raises(LostProcessError, match="is the disk full"):
            run.add_checkpoint(2, training.write, env_steps=128, keep=1)
    finally:
        training.close()
    assert names(run) == ["iteration_000001"]


@pytest.mark.usefixtures("ray_cluster")
def test_a_run_goes_on_from_the_checkpoint_before_a_torn_one(
    tmp_path: Path, caplog, record_property
):
    experiment = parse_experiment(SMALL)
    run = RunDirectory(tmp_path / "run")
    train(experiment, run.path, checkpoint_every=2)
    assert names(run) == ["iteration_000002", "iteration_000004"]
    _cut(run.checkpoints / "iteration_000004" / "algorithm" / "algorithm_state.pkl")
    longer = parse_experiment(SMALL | {"stop": {"env_steps": 320}})
    seen: list[float] = []
    train(longer, run.path, resume=True, on_row=lambda row: seen.append(row["iteration"]))
    assert seen == [3, 4, 5]
    assert [row["iteration"] for row in run.read_metrics()] == [1, 2, 3, 4, 5]
    assert names(run) == ["iteration_000002", "iteration_000005"]
    assert "iteration_000004 is torn and left out" in caplog.text
    outcome = "is left out with a warning; the one before it is taken"
    record_property("fault", {"fault": "a checkpoint with a torn file", "outcome": outcome})


def test_rise_refuses_a_torn_checkpoint_in_one_sentence(run: RunDirectory):
    (run.checkpoints / "iteration_000020" / MANIFEST).unlink()
    done = rise(run.path, "evaluate", "checkpoints/iteration_000020")
    assert done.returncode == 2
    assert "iteration_000020 is torn: it has no MANIFEST.json" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_checkpoint_that_others_can_write_to_is_warned_of(run: RunDirectory, caplog):
    checkpoint = run.checkpoints / "iteration_000020"
    warn_of_strangers(checkpoint)
    assert caplog.records == []
    (checkpoint / "inner" / "weights").chmod(0o666)
    warn_of_strangers(checkpoint)
    (record,) = caplog.records
    assert "every user may write to" in record.getMessage()
    assert "opening it runs whatever code is in it" in record.getMessage()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_checkpoint_of_another_user_is_warned_of(run: RunDirectory, caplog):
    os.chown(run.path, 54321, -1)
    warn_of_strangers(run.checkpoints / "iteration_000020")
    (record,) = caplog.records
    assert f"{run.path} belongs to the user 54321" in record.getMessage()
