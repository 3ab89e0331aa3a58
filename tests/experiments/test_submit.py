"""What `rise submit` decides before it asks a cluster. Jobs themselves: tests/cluster."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import refused
from ray.job_submission import JobDetails, JobStatus, JobType
from test_cli import SMALL

from rllib_rise.errors import ClusterError, ConfigError
from rllib_rise.experiments.run.run_directory import COMMIT, versions
from rllib_rise.experiments.submit.address import allow_token, checked_address
from rllib_rise.experiments.submit.environment import (
    SUBMITTED_WITH,
    differences,
    installed,
    runtime_environment,
)
from rllib_rise.experiments.submit.follow import follow
from rllib_rise.experiments.submit.job import Submission, connect, plan_job, submit


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.yaml").write_text(yaml.safe_dump(SMALL))
    sweep = {**SMALL, "search": {"space": {"alpha": {"grid": [0.1, 0.5]}}, "seeds": 2}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    return tmp_path


def plan(project: Path, file: str = "configs/small.yaml", *overrides: str, storage="/shared"):
    return plan_job(project / file, overrides, storage=storage, sent=project)


# addresses and tokens


@pytest.mark.parametrize(
    "address",
    ["https://ray.example.org", "http://127.0.0.1:8265", "localhost:8265", "http://[::1]:8265"],
)
def test_encrypted_and_local_addresses_need_no_token(address: str):
    url, warnings = checked_address(address, token=False)
    assert url.endswith(address)
    assert not warnings


def test_plain_http_to_another_machine_is_refused_without_a_token_and_warned_of_with_one():
    with pytest.raises(ConfigError, match="no token") as stopped:
        checked_address("http://10.0.0.7:8265", token=False)
    assert "ssh -L" in str(stopped.value)
    _, warnings = checked_address("http://10.0.0.7:8265", token=True)
    assert "can be read on the way" in warnings[0]


@pytest.mark.parametrize("address", ["ray://10.0.0.7:10001", "http://", "auto://x"])
def test_what_does_not_take_jobs_is_refused(address: str):
    with pytest.raises(ConfigError, match="8265"):
        checked_address(address, token=True)


def test_passwords_in_addresses_are_refused_and_not_repeated():
    with pytest.raises(ConfigError) as stopped:
        checked_address("https://me:hunter2@ray.example.org", token=True)
    assert "hunter2" not in str(stopped.value)


def test_a_token_is_found_where_ray_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that it is put back, whatever happens to it here
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not allow_token()
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").touch()
    assert not allow_token()
    (tmp_path / ".ray" / "auth_token").write_text("secret")
    assert allow_token()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # then Ray sends none
    assert not allow_token()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "nowhere"))
    assert not allow_token()


# what is submitted


def test_a_run_is_the_command_that_one_would_type_on_the_cluster(project: Path):
    job = plan(project, "configs/small.yaml", "alpha=0.5", "seed=3")
    assert job.name == "small-rise-seed3"
    assert job.folder == "/shared/small-rise-seed3"
    words = " ".join(job.command)
    assert words.startswith("python -m rllib_rise.cli train configs/small.yaml --set alpha=0.5")
    assert "--out /shared/small-rise-seed3 --resume" in words
    assert words.endswith("--address auto")


def test_a_sweep_is_known_by_its_search(project: Path):
    job = plan(project, "sweep.yaml")
    assert job.command[3:5] == ("tune", "sweep.yaml")
    assert job.name == "tune-sweep"


def test_the_same_run_has_the_same_id_and_another_run_another(project: Path):
    ids = {
        plan(project).identity,
        plan(project, "configs/small.yaml", "alpha=0.5").identity,
        plan(project, "configs/small.yaml", "rllib.lr=0.1").identity,
        plan(project, storage="/elsewhere").identity,
        plan(project, "sweep.yaml").identity,
    }
    assert len(ids) == 5
    assert plan(project).identity in ids


def test_a_longer_budget_is_the_same_run_with_another_goal(project: Path):
    short, long = plan(project), plan(project, "configs/small.yaml", "stop.env_steps=9999")
    assert short.identity == long.identity
    assert short.goal != long.goal
    assert short.goal == plan(project).goal


def test_a_sweep_with_another_budget_is_another_one(project: Path):
    longer = plan(project, "sweep.yaml", "stop.env_steps=9999")
    assert longer.identity != plan(project, "sweep.yaml").identity


class Cluster:
    """What a cluster's job API answers, as far as `submit` and `follow` ask it."""

    def __init__(self, *outputs: list[str] | Exception, end: JobStatus = JobStatus.SUCCEEDED):
        self.jobs: list[JobDetails] = []
        self._outputs, self._end = list(outputs), end

    def list_jobs(self) -> list[JobDetails]:
        return self.jobs

    def submit_job(self, *, submission_id: str, metadata: dict, **rest: Any) -> None:
        details = {"type": JobType.SUBMISSION, "entrypoint": rest["entrypoint"]}
        status = JobStatus.RUNNING
        self.jobs.append(
            JobDetails(submission_id=submission_id, metadata=metadata, status=status, **details)
        )

    def end(self, status: JobStatus) -> None:
        self.jobs[-1].status = status

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        output = self._outputs.pop(0) if self._outputs else []
        if isinstance(output, Exception):
            raise output
        for piece in output:
            yield piece

    def get_job_info(self, job_id: str) -> JobDetails:
        status = JobStatus.RUNNING if self._outputs else self._end
        return JobDetails(
            type=JobType.SUBMISSION, entrypoint="", status=status, message="why", driver_exit_code=3
        )


def test_what_a_second_submission_finds(project: Path):
    cluster, job = Cluster(), plan(project)
    longer = plan(project, "configs/small.yaml", "stop.env_steps=9999")
    assert submit(cluster, job, sent=project) == Submission(f"{job.identity}-1", "submitted")
    assert submit(cluster, job, sent=project).state == "running"
    assert submit(cluster, longer, sent=project).state == "running to another end"
    cluster.end(JobStatus.FAILED)
    assert submit(cluster, job, sent=project) == Submission(f"{job.identity}-2", "submitted")
    cluster.end(JobStatus.SUCCEEDED)
    assert submit(cluster, job, sent=project).state == "done"
    assert submit(cluster, longer, sent=project) == Submission(f"{job.identity}-3", "submitted")


def test_a_folder_belongs_to_one_run(project: Path):
    cluster = Cluster()
    submit(cluster, plan(project), sent=project)
    other = plan(project, "configs/small.yaml", "alpha=0.5")
    with pytest.raises(ClusterError, match="give this run another --name"):
        submit(cluster, other, sent=project)


def test_the_address_that_was_checked_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:7")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:7")
    with pytest.raises(ClusterError, match=r"connect to Ray at address: http://127.0.0.1:9\."):
        connect("http://127.0.0.1:9")
    assert os.environ["RAY_ADDRESS"] == "http://127.0.0.1:7"


def test_following_goes_on_behind_a_lost_connection():
    told: list[str] = []
    cluster = Cluster(["one ", "two "], OSError("away"), ["one two thr", "ee"])
    assert follow(cluster, "a-job", told.append, patience=60) == 0
    assert "".join(told) == "one two three"  # and nothing of a success


def test_following_gives_up_when_nobody_answers_and_passes_on_why_a_job_failed():
    away = [OSError("away")] * 9
    with pytest.raises(ClusterError, match="has not answered"):
        follow(Cluster(["one"], *away), "a-job", lambda piece: None, patience=0)
    told: list[str] = []
    assert follow(Cluster(["one"], end=JobStatus.FAILED), "a-job", told.append) == 3
    assert "failed: why" in "".join(told)


def test_settings_are_checked_before_anything_is_sent(project: Path):
    with pytest.raises(ConfigError, match="alpha"):
        plan(project, "configs/small.yaml", "alpha=7")


def test_files_from_elsewhere_and_relative_storage_are_refused(project: Path, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    with pytest.raises(ConfigError, match="is what is sent"):
        plan_job(project / "configs/small.yaml", storage="/shared", sent=other)
    with pytest.raises(ConfigError, match="absolute path on the cluster"):
        plan(project, storage="runs")


def test_a_home_directory_is_not_sent(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(project))
    with pytest.raises(ConfigError, match="your home directory"):
        runtime_environment(project)


def test_files_that_stay_behind_are_refused_with_what_they_build_on(project: Path):
    (project / "runs").mkdir()
    (project / "runs" / "best.yaml").write_text(yaml.safe_dump(SMALL))
    with pytest.raises(ConfigError, match="is in runs/, which is not sent"):
        plan(project, "runs/best.yaml")
    (project / "more.yaml").write_text("base: runs/best.yaml")
    with pytest.raises(ConfigError, match=r"best.yaml is in runs/"):
        plan(project, "more.yaml")
    (project / "configs" / "more.yaml").write_text("base: ../sweep.yaml")
    with pytest.raises(ConfigError, match="is not below"):
        plan_job(project / "configs/more.yaml", storage="/shared", sent=project / "configs")


def test_a_name_chooses_the_folder(project: Path):
    job = plan_job(project / "sweep.yaml", storage="/shared/", sent=project, name="again")
    assert job.folder == "/shared/again"
    assert job.identity != plan(project, "sweep.yaml").identity
    with pytest.raises(ConfigError, match="not a path"):
        plan_job(project / "sweep.yaml", storage="/shared", sent=project, name="a/b")


def test_secrets_and_results_do_not_go_along(project: Path):
    environment = runtime_environment(project)
    assert {"/.git", "/runs", "*auth_token*", "*.pem", ".env*"} <= set(environment["excludes"])
    assert json.loads(environment["env_vars"][SUBMITTED_WITH])["ray"]
    assert environment["env_vars"][COMMIT] == versions()["commit"]
    with pytest.raises(ConfigError, match="requirements file"):
        runtime_environment(project, project / "missing.txt")


def test_other_versions_on_the_cluster_are_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(SUBMITTED_WITH, raising=False)
    assert differences() == []
    monkeypatch.setenv(SUBMITTED_WITH, json.dumps({**installed(), "torch": "1.0"}))
    (line,) = differences()
    assert "torch" in line
    assert "submitted with 1.0" in line


def test_the_command_refuses_in_a_sentence(project: Path, monkeypatch, capsys):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    told = refused(
        *(project, monkeypatch, capsys, "submit", "configs/small.yaml"),
        *("--storage", "/shared", "--address", "http://10.255.0.1:8265"),
    )
    assert "plain HTTP to another machine" in told


def test_an_address_where_nobody_answers(project: Path, monkeypatch, capsys):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    told = refused(
        *(project, monkeypatch, capsys, "submit", "configs/small.yaml"),
        *("--storage", "/shared", "--address", "http://127.0.0.1:9"),
    )
    assert "no Ray cluster answers at http://127.0.0.1:9" in told
