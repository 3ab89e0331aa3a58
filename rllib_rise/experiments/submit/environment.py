"""What goes with a job: the directory, packages, and the versions it was written with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.run.run_directory import COMMIT, versions

SUBMITTED_WITH = "RISE_SUBMITTED_WITH"
# How long Ray waits for a job that was asked to stop: an iteration and a checkpoint; 3 by default.
_STOP_SECONDS = 120
# Folders that are not sent, beyond what .gitignore and .rayignore name.
LEFT_HERE = (".git", ".venv", "runs", "results", "docs", "tests")
_EXCLUDES = (
    *(f"/{folder}" for folder in LEFT_HERE),
    *("__pycache__", "*.egg-info"),
    # What is often secret.
    *(".env*", "*.pem", "*.key", "*.p12", "*auth_token*", "id_rsa*", "id_ecdsa*", "id_ed25519*"),
    *(".ssh", ".aws", ".kube", "kubeconfig*", ".netrc", ".pypirc", ".git-credentials"),
)


def runtime_environment(sent: Path, pip: Path | None = None) -> dict[str, Any]:
    """Ray's description of a job's surroundings.

    Args:
        sent: The directory in a copy of which the job works.
        pip: A requirements file; its packages are installed for this job alone, on every node.
    """
    if sent.resolve() == Path.home():
        raise ConfigError(
            f"{sent.resolve()} would be sent to the cluster, your home directory with all that is "
            "in it: start `rise submit` in the directory of your project"
        )
    environment: dict[str, Any] = {
        "working_dir": str(sent.resolve()),
        "excludes": list(_EXCLUDES),
        "env_vars": {
            SUBMITTED_WITH: json.dumps(installed()),
            COMMIT: versions()["commit"] or "",
            "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS),
        },
    }
    if pip is not None:
        if not pip.is_file():
            raise ConfigError(f"--pip {pip}: no such file; give a requirements file")
        environment["pip"] = str(pip)
    return environment


def installed() -> dict[str, str | None]:
    """Versions that a run's result may depend on."""
    found = versions()
    return {"python": found["python"], **found["packages"]}


def differences() -> list[str]:
    """How this process' versions differ from the submitter's, where it is a job's."""
    if SUBMITTED_WITH not in os.environ:
        return []
    there, here = json.loads(os.environ[SUBMITTED_WITH]), installed()
    return [
        f"the cluster has {name} {here[name]}, the job was submitted with {there[name]}"
        for name in here
        if name in there and there[name] != here[name]
    ]
