"""`rise submit` on a cluster of three hosts with token authentication."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from cluster_runs import ENDLESS, ENV_RUNNER, LEARNER, RUN, Submitted
from hosts import HEAD, Hosts

from rllib_rise.bonuses import RISE, Transitions, parse_settings
from rllib_rise.encoders.files import load_encoder


def bonus_of(run: Path, k: float) -> torch.Tensor:
    """The bonus with the encoder and the k that a run's Phase 1 has found, on a recorded batch."""
    observations = torch.rand(256, 2, generator=torch.Generator().manual_seed(0))
    embedded = load_encoder(run / "encoder.safetensors", (2,))(observations)
    settings = parse_settings(RISE, {"encoder": "identity", "k": int(k)})
    return RISE(settings, tuple(embedded.shape[1:])).reward(Transitions(obs=embedded))


def test_a_submitted_run_trains_on_two_hosts_as_it_would_on_one(
    hosts: Hosts, project: Path, submit
):
    run: Submitted = submit(1)
    run.wait(lambda: run.runners() == 2)
    for worker in (1, 2):
        assert hosts.processes(worker, ENV_RUNNER)
    assert hosts.processes(HEAD, LEARNER)
    followed = hosts.rise(
        *("submit", "run.yaml", "--address", hosts.address, "--seed", "1"),
        *("--storage", str(hosts.storage), "--follow"),
        folder=project,
    )
    assert f"runs already, as {run.id}" in followed.stdout
    assert f"{RUN['stop']['env_steps']:,}" in followed.stdout  # its progress
    assert (run.folder / "report.html").exists()
    again = hosts.rise(
        *("submit", "run.yaml", "--address", hosts.address, "--seed", "1"),
        *("--storage", str(hosts.storage)),
        folder=project,
    )
    assert f"is done, by {run.id}" in again.stdout
    assert [job["metadata"]["rise_run"] for job in hosts.jobs()].count(run.folder.name) == 1

    anywhere = ("custom_resources_per_env_runner", "custom_resources_per_learner")
    local = subprocess.run(
        [
            *(sys.executable, "-m", "rllib_rise.cli", "train", "run.yaml", "--seed", "1"),
            *("--out", "local", *(f"--set=rllib.{key}={{}}" for key in anywhere)),
        ],
        cwd=project,
        capture_output=True,
        text=True,
        env={k: v for k, v in hosts.environment.items() if not k.startswith("RAY_")},
    )
    assert local.returncode == 0, local.stdout
    here = Submitted(hosts, project / "local", "").rows()
    assert run.rows()[-1].keys() == here[-1].keys()
    assert run.rows()[-1]["rise_k"] == here[-1]["rise_k"]
    expected = bonus_of(project / "local", here[-1]["rise_k"])
    assert float(expected.std()) > 0
    assert torch.equal(bonus_of(run.folder, run.rows()[-1]["rise_k"]), expected)


def test_two_submissions_at_once_are_one_run(hosts: Hosts, project: Path):
    command = hosts.command(
        *(sys.executable, "-m", "rllib_rise.cli", "submit", "run.yaml", "--seed", "2"),
        *("--address", hosts.address, "--storage", str(hosts.storage), "--set", ENDLESS),
    )
    both = [
        subprocess.Popen(**command, cwd=project, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted("submitted as" in one for one in told) == [False, True]
    assert sorted("runs already" in one for one in told) == [False, True]
    assert (
        len([job for job in hosts.jobs() if job["metadata"]["rise_run"] == "run-rise-seed2"]) == 1
    )


def test_a_stopped_run_has_its_checkpoint_and_goes_on_when_it_is_submitted_again(submit):
    run: Submitted = submit(3, "--checkpoint-every", "100000", "--set", ENDLESS)
    run.wait(lambda: len(run.rows()) > 8)
    run.stop()
    run.wait(lambda: run.hosts.status(run.id) == "STOPPED")
    saved = max((run.folder / "checkpoints").glob("iteration_*")).name
    assert int(saved.removeprefix("iteration_")) == len(run.rows()) > 8
    again: Submitted = submit(3, "--checkpoint-every", "100000", "--set", ENDLESS)
    assert again.id == run.id[:-1] + "2"
    before = run.rows()
    again.wait(lambda: len(again.rows()) > len(before))
    assert again.rows()[: len(before)] == before


def test_without_a_token_nothing_is_done(hosts: Hosts, project: Path, tmp_path: Path):
    before = hosts.jobs()
    ask = f"import urllib.request as u; u.urlopen(u.Request({hosts.address + '/api/jobs/'!r}))"
    bare = subprocess.run(
        **hosts.command(sys.executable, "-c", ask), capture_output=True, text=True
    )
    assert "401" in bare.stderr
    arguments = ("submit", "run.yaml", "--address", hosts.address, "--storage", "/shared")
    nothing = hosts.rise(
        *arguments, folder=project, check=False, RAY_AUTH_TOKEN_PATH=str(tmp_path / "none")
    )
    assert nothing.returncode == 2
    assert "plain HTTP to another machine, and no token" in nothing.stdout
    (tmp_path / "wrong").write_text("0" * 64)
    wrong = hosts.rise(
        *arguments, folder=project, check=False, RAY_AUTH_TOKEN_PATH=str(tmp_path / "wrong")
    )
    assert wrong.returncode == 2
    assert "does not know the token that it was given (403)" in wrong.stdout
    assert hosts.jobs() == before


def test_the_token_is_in_no_file_log_or_command_line(hosts: Hosts, submit):
    run: Submitted = submit(4, "--set", ENDLESS)
    run.wait(lambda: len(run.rows()) > 2)
    lines = [
        " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
    ]
    assert any("run.yaml" in line for line in lines)
    assert not any(hosts.token in line for line in lines)
    assert hosts.token not in run.log()
    secret = hosts.token.encode()
    files = [path for path in hosts.storage.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret in path.read_bytes()]


def test_storage_that_a_node_does_not_see_is_refused(hosts: Hosts, project: Path):
    refused = hosts.rise(
        *("submit", "run.yaml", "--address", hosts.address, "--follow"),
        *("--storage", "/dev/shm/rise"),  # every host has its own
        folder=project,
        check=False,
    )
    assert refused.returncode == 2
    assert "is not there on 10.77.0.11, 10.77.0.12" in refused.stdout
    assert "storage that all of them mount" in refused.stdout


@pytest.mark.parametrize("words", [("--set", "alpha=7"), ("--storage", "runs")])
def test_what_is_wrong_is_said_before_anything_is_sent(hosts: Hosts, project: Path, words):
    before = hosts.jobs()
    refused = hosts.rise(
        *("submit", "run.yaml", "--address", hosts.address, "--storage", "/shared", *words),
        folder=project,
        check=False,
    )
    assert refused.returncode == 2
    assert hosts.jobs() == before
