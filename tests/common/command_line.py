"""The `rise` command of this tree in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from rllib_rise import cli

ROOT = Path(__file__).parents[2]
COMMON = Path(__file__).parent
# Against hanging only: what takes a minute alone takes ten beside everything else.
_PATIENCE_SECONDS = 900


def environment() -> dict[str, str]:
    """The variables of such a process; this tree comes before whatever is installed."""
    paths = os.pathsep.join([str(ROOT), str(COMMON)])
    return {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "rllib_rise.cli", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=_PATIENCE_SECONDS)
    assert process.returncode == 0, output
    return output


def rise(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "rllib_rise.cli", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )


def refused(folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture, *words) -> str:
    """What `rise` answers to arguments that it refuses, in this process: libraries are loaded."""
    patch.chdir(folder)
    patch.setenv("COLUMNS", "200")
    patch.setattr(sys, "path", list(sys.path))
    patch.setattr(sys, "argv", ["rise", *words])
    with pytest.raises(SystemExit) as stopped, warnings.catch_warnings():
        cli.main()
    told = capture.readouterr()
    assert stopped.value.code == 2, told
    return told.out + told.err
