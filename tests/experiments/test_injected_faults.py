"""Faults put into a run: each ends in a sentence of ours, or is survived, and the run can go on."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import faults_for_tests
import pytest
import yaml
from command_line import rise, start

from rllib_rise.experiments.run.restarts import LOST

pytestmark = pytest.mark.slow

RUN = Path("runs") / "walk-rise-seed0"
WALK = {
    "env": {"id": "faults_for_tests:faults/Walk-v0"},
    "stop": {"env_steps": 6000},
    "rllib": {
        "num_env_runners": 0,
        "num_envs_per_env_runner": 4,
        "train_batch_size_per_learner": 256,
        "minibatch_size": 128,
        "num_epochs": 2,
    },
    "intrinsic": {"method": "rise", "k": 3},
}
# Env runners in processes of their own, and little patience with them.
REMOTE = (
    "rllib.num_env_runners=2",
    "rllib.num_cpus_per_env_runner=0.5",
    "rllib.sample_timeout_s=2",
    "rllib.delay_between_env_runner_restarts_s=1",
    "rllib.env_runner_health_probe_timeout_s=5",
)
ENDS = {
    "an environment that raises": (
        ("env.fault=raises",),
        "the run failed with ValueError: the simulator has lost its licence",
    ),
    "environments that hang on all env runners": (
        ("env.fault=hangs", *REMOTE),
        "no env runner has taken a step for",
    ),
    "environments that raise in every step on all env runners": (
        ("env.fault=raises at once", *REMOTE),
        "no env runner has taken a step for",
    ),
    "environments that hang on all env runners in Phase 1": (
        ("env.fault=hangs at once", "k=auto", "warmup_steps=256", *REMOTE),
        "Phase 1 got 0 of 256 steps (intrinsic.warmup_steps) from 2 env runners, which were lost",
    ),
    "an environment that raises in Phase 1": (
        ("env.fault=raises at once", "k=auto", "warmup_steps=256"),
        "from the local env runner; environments failed: ValueError: the simulator has no licence",
    ),
    "an environment that cannot be made": (
        ("env.fault=cannot be made",),
        "the run could not be built: ValueError: the simulator is not installed",
    ),
    "an encoder's fit that fails": (
        ("intrinsic.method=faults_for_tests:FailingFit", "k=auto", "warmup_steps=256"),
        "module 'default_policy': the fit of Phase 1 failed with RuntimeError: out of memory",
    ),
    "an error in FAISS": (
        ("intrinsic.method=faults_for_tests:FailingFaiss", "k=3"),
        "FAISS failed to find neighbours (Error in void fvec_L2sqr_by_idx(): no more room); "
        "intrinsic.knn_backend=torch does without it",
    ),
    "a loss that is NaN": (
        ("rllib.learner_class=faults_for_tests:NaNLoss",),
        "the loss of module 'default_policy' is nan at iteration",
    ),
}


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that makes things go wrong, beside the experiment."""
    (tmp_path / "walk.yaml").write_text(yaml.safe_dump(WALK))
    path = tmp_path / "fault"
    path.touch()
    monkeypatch.setenv(faults_for_tests.VARIABLE, str(path))
    return path


@pytest.mark.parametrize("name", ENDS)
def test_a_fault_ends_in_a_sentence_and_the_run_goes_on_when_it_is_mended(
    name: str, fault: Path, record_property
):
    changes, words = ENDS[name]
    command = ["train", "walk.yaml", "--out", str(RUN), "--checkpoint-every", "2"]
    command += [f"--set={change}" for change in changes]
    ended = rise(fault.parent, *command)
    told = ended.stdout + ended.stderr
    code = LOST if REMOTE[0] in changes else 2
    assert ended.returncode == code, told
    assert words in told, told
    has_traceback = (fault.parent / RUN / "error.txt").exists()
    assert has_traceback == ("error.txt" in told)
    fault.unlink()
    gone_on = rise(fault.parent, *command, "--resume")
    assert gone_on.returncode == 0, gone_on.stdout + gone_on.stderr
    assert (fault.parent / RUN / "result.json").exists()
    assert not (fault.parent / RUN / "error.txt").exists()
    record_property("fault", {"fault": name, "outcome": f"ends with {code}: {words} ..."})


def test_env_runners_whose_environments_raise_now_and_then_are_made_again(
    fault: Path, record_property
):
    command = ["train", "walk.yaml", "--out", str(RUN), "--set=env.fault=raises"]
    # New processes take long to come up on a machine that has much to do.
    changes = (*REMOTE, "rllib.sample_timeout_s=60")
    done = rise(fault.parent, *command, *(f"--set={change}" for change in changes))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (fault.parent / RUN / "result.json").exists()
    record_property(
        "fault",
        {
            "fault": "environments that raise now and then on env runners",
            "outcome": "goes on: RLlib makes those env runners again",
        },
    )


def test_a_run_goes_on_with_the_env_runners_that_do_not_hang(fault: Path, record_property):
    command = ["train", "walk.yaml", "--out", str(RUN), "--set=env.fault=hangs on one"]
    command += ["--set=stop.env_steps=2500"]
    done = rise(fault.parent, *command, *(f"--set={change}" for change in REMOTE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert fault.with_suffix(".chosen").exists()
    assert (fault.parent / RUN / "result.json").exists()
    record_property(
        "fault",
        {
            "fault": "environments that hang on one of two env runners",
            "outcome": "goes on with the other, after waiting for rllib.sample_timeout_s",
        },
    )


def test_a_second_interrupt_ends_a_run_that_hangs_and_it_goes_on(fault: Path, record_property):
    command = ["train", "walk.yaml", "--out", str(RUN), "--checkpoint-every", "2"]
    process = start(fault.parent, *command, "--set=env.fault=hangs on one")
    deadline = time.monotonic() + 600
    while not fault.with_suffix(".chosen").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    time.sleep(3.0)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=600)
    assert process.returncode == 130, told
    fault.unlink()
    gone_on = rise(fault.parent, *command, "--set=env.fault=hangs on one", "--resume")
    assert gone_on.returncode == 0, gone_on.stdout + gone_on.stderr
    assert (fault.parent / RUN / "result.json").exists()
    record_property(
        "fault",
        {
            "fault": "an environment that hangs in the run's own process",
            "outcome": "hangs, until Ctrl-C is pressed twice; --resume goes on",
        },
    )
