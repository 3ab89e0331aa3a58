"""A run or a sweep as a job of a Ray cluster.

A job's id is made from the run's name, its settings and its place, and the number of the attempt:
rise-maze-rise-seed0-1a2b3c4d-1. Ray takes an id once, so of two submissions at the same time one
is refused, and the attempts of a run can be found again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from rllib_rise.errors import ClusterError, ConfigError
from rllib_rise.experiments import schema
from rllib_rise.experiments.submit.environment import LEFT_HERE, runtime_environment
from rllib_rise.experiments.sweep.schema import load_sweep

# What a job was to reach and where it writes, in its metadata.
_GOAL, _FOLDER = "rise_goal", "rise_folder"
# Variables that Ray's client would take an address from, whatever it was given.
_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")


@dataclass(frozen=True)
class Job:
    """What is to be done on a cluster.

    Attributes:
        name: Of the run; its folder is of the same name.
        folder: Where it writes, as the cluster sees it.
        command: What the cluster executes, in a copy of the directory that is sent.
        identity: The beginning of the ids of all its attempts.
        goal: A fingerprint of all that was asked, with the run's end.
    """

    name: str
    folder: str
    command: tuple[str, ...]
    identity: str
    goal: str


@dataclass(frozen=True)
class Submission:
    """What became of a submission.

    Attributes:
        id: Of the job in question.
        state: Whether it was submitted now, runs already (perhaps to another end), or is done.
    """

    id: str
    state: Literal["submitted", "running", "running to another end", "done"]


def plan_job(
    file: Path,
    overrides: Sequence[str] = (),
    *,
    storage: str,
    sent: Path,
    name: str | None = None,
    options: Sequence[str] = (),
) -> Job:
    """The job for a YAML file, which is read and checked here already.

    Args:
        file: An experiment, or a sweep.
        overrides: As of `--set`.
        storage: The folder on the cluster below which the run's folder is.
        sent: The directory that goes to the cluster.
        name: Of the run's folder; by default made from the file, the method and the seed.
        options: Further ones of the command, which do not change what is computed.
    """
    if not Path(storage).is_absolute():
        raise ConfigError(
            f"--storage {storage}: give an absolute path on the cluster. A job works in a copy of "
            "your directory that Ray throws away, so what it writes must be elsewhere"
        )
    kind, usual_name, asked = _read(file, overrides)
    inside, *_ = [_inside(path, sent) for path in (file, *schema.bases(file))]
    name = name or usual_name
    if "/" in name:
        raise ConfigError(f"--name {name}: a name, not a path; --storage is where it is")
    folder = f"{storage.rstrip('/')}/{name}"
    lasting = dict(asked)
    if kind == "train":  # which may go on to another end
        lasting["experiment"] = {k: v for k, v in asked["experiment"].items() if k != "stop"}
    identity = _fingerprint([kind, folder, lasting])
    settings = [word for override in overrides for word in ("--set", override)]
    return Job(
        name=name,
        folder=folder,
        command=(
            *("python", "-m", "rllib_rise.cli", kind, inside.as_posix(), *settings),
            *("--out", folder, "--resume", *options, "--address", "auto"),
        ),
        identity=f"rise-{re.sub(r'[^A-Za-z0-9_-]', '-', name)}-{identity}",
        goal=_fingerprint([kind, folder, asked]),
    )


def connect(address: str) -> JobSubmissionClient:
    """A client for the cluster whose dashboard is at `address`."""
    elsewhere = {name: os.environ.pop(name) for name in _ADDRESSES if name in os.environ}
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise ClusterError(_why_refused(address, error)) from None
    except (ConnectionError, requests.exceptions.RequestException) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address}: {_first_line(error)}. It must be the address of "
            "the dashboard (port 8265 by default), and this machine must reach it"
        ) from None
    finally:
        os.environ.update(elsewhere)


def submit(
    client: JobSubmissionClient,
    job: Job,
    *,
    sent: Path,
    pip: Path | None = None,
) -> Submission:
    """Send a job, unless the same run is done or under way there."""
    try:
        known = client.list_jobs()
    except (RuntimeError, OSError) as error:
        raise ClusterError(f"the cluster does not answer: {_first_line(error)}") from None
    _refuse_taken_folder(known, job)
    last = max(known, key=lambda found: _number(found, job), default=None)
    number = _number(last, job) if last is not None else 0
    if last is not None and number:
        same_end = (last.metadata or {}).get(_GOAL) == job.goal
        if not last.status.is_terminal():
            return Submission(
                str(last.submission_id), "running" if same_end else "running to another end"
            )
        if last.status == JobStatus.SUCCEEDED and same_end:
            return Submission(str(last.submission_id), "done")
    name = f"{job.identity}-{number + 1}"
    try:
        client.submit_job(
            # Without a shell in between, Ray's request to stop reaches the run, and Ray its end.
            entrypoint=f"exec {shlex.join(job.command)}",
            submission_id=name,
            runtime_env=runtime_environment(sent, pip),
            metadata={"rise_run": job.name, _GOAL: job.goal, _FOLDER: job.folder},
        )
    except (RuntimeError, OSError) as error:
        if "already exists" not in str(error):
            raise ClusterError(f"the cluster refuses the job: {_first_line(error)}") from None
        return Submission(name, "running")  # somebody was faster
    return Submission(name, "submitted")


def _refuse_taken_folder(known: Sequence[JobDetails], job: Job) -> None:
    """Another run's folder would be refused by the job itself, but only there."""
    for other in known:
        same_folder = (other.metadata or {}).get(_FOLDER) == job.folder
        if same_folder and not _number(other, job):
            raise ClusterError(
                f"{job.folder} is that of {other.submission_id}, which has other settings: give "
                "this run another --name"
            )


def _inside(file: Path, sent: Path) -> Path:
    """Where a file is in the copy of the directory that goes to the cluster."""
    try:
        inside = file.resolve().relative_to(sent.resolve())
    except ValueError:
        raise ConfigError(
            f"{file} is not below {sent.resolve()}, which is what is sent to the cluster: start "
            "`rise submit` in a directory that holds it"
        ) from None
    if inside.parts[0] in LEFT_HERE:
        raise ConfigError(
            f"{file} is in {inside.parts[0]}/, which is not sent to the cluster: copy it to "
            "another folder"
        )
    return inside


def _number(found: JobDetails, job: Job) -> int:
    """Which attempt at this run a job is; 0 if it is none."""
    match = re.fullmatch(re.escape(job.identity) + r"-(\d+)", found.submission_id or "")
    return int(match[1]) if match else 0


def _read(file: Path, overrides: Sequence[str]) -> tuple[str, str, dict[str, Any]]:
    """Which command a file is for, the run's name, and all that is asked."""
    if "search" in schema.read_data(file):
        sweep = load_sweep(file, overrides)
        return "tune", f"tune-{file.stem}", sweep.as_data()
    experiment = schema.load_experiment(file, overrides)
    schema.check(experiment)
    return "train", experiment.run_name(file), {"experiment": experiment.resolved()}


def _fingerprint(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:8]


def _why_refused(address: str, error: Exception) -> str:
    if "Missing" in str(error):
        return (
            f"{address} asks for a token (401), and there is none here: copy the cluster's and set "
            "RAY_AUTH_TOKEN_PATH to that file"
        )
    return (
        f"{address} does not know the token that it was given (403): set RAY_AUTH_TOKEN_PATH to a "
        "copy of the cluster's own"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
