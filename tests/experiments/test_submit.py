"""What `rise submit` decides before it asks a cluster. Jobs themselves: tests/cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from command_line import refused
from test_cli import SMALL

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.submit.address import allow_token, checked_address
from rllib_rise.experiments.submit.environment import (
    SUBMITTED_WITH,
    differences,
    installed,
    runtime_environment,
)
from rllib_rise.experiments.submit.job import plan_job


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


def test_settings_are_checked_before_anything_is_sent(project: Path):
    with pytest.raises(ConfigError, match="alpha"):
        plan(project, "configs/small.yaml", "alpha=7")


def test_files_from_elsewhere_and_relative_storage_are_refused(project: Path, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    with pytest.raises(ConfigError, match="is what is sent"):
        plan_job(project / "configs/small.yaml", storage="/shared", sent=other)
    with pytest.raises(ConfigError, match="absolute path on the cluster"):
        plan(project, storage="runs")


def test_secrets_and_results_do_not_go_along(project: Path):
    environment = runtime_environment(project)
    assert {".git", "runs", "*auth_token*", "*.pem", ".env"} <= set(environment["excludes"])
    assert json.loads(environment["env_vars"][SUBMITTED_WITH])["ray"]
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
