"""The programs in examples/ run as their headers say, most of them with few steps here."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import environment, rise
from pages import ROOT
from short_commands import shortened

from rllib_rise.experiments.tables import read_rows

EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
STEPS = "2000"  # each of them trains for ten iterations at least


def how_to_run(name: str) -> list[list[str]]:
    """The commands of its header, without the options that may be left out."""
    header = ast.get_docstring(ast.parse(EXAMPLES[name].read_text()))
    [lines] = re.findall(r"^How to run:\n((?:    .*\n)+)", header, re.MULTILINE)
    return [shlex.split(re.sub(r"\[.*?\]", "", line)) for line in lines.splitlines()]


def run(name: str, steps: str | None = STEPS) -> list[str]:
    """What a program prints."""
    [[python, program]] = how_to_run(name)
    assert (python, ROOT / program) == ("python", EXAMPLES[name])
    done = subprocess.run(
        [sys.executable, program, *(() if steps is None else ("--steps", steps))],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_example_has_a_test():
    assert set(EXAMPLES) == {"own_bonus", "own_environment", "rllib_script"}


@pytest.mark.slow
def test_own_environment():
    """As long as its header says: then the treasure is found with RISE, and not without."""
    found = {
        line.split()[0]: [float(word) for word in line.split()[1:]]
        for line in run("own_environment", steps=None)
    }
    assert found.keys() == {"none", "rise"}
    assert [len(returns) for returns in found.values()] == [10, 10]
    assert max(found["none"]) < 0.01
    assert max(found["rise"]) > 0.9


@pytest.mark.slow
def test_rllib_script():
    lines = run("rllib_script")
    assert len(lines) == 10
    for line in lines:
        found = re.search(r"return +(-[\d.]+) +arrived ([\d.]+)$", line)
        assert found, line
        assert -200 <= float(found[1]) < 0
        assert 0 <= float(found[2]) <= 1


@pytest.mark.slow
def test_own_bonus(tmp_path: Path):
    for name in ("configs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    for program, *words in how_to_run("own_bonus"):
        assert program == "rise"
        done = rise(tmp_path, *shortened(*words))
        assert done.returncode == 0, done.stdout + done.stderr
    [metrics] = tmp_path.glob("runs/maze-*/metrics.csv")
    bonus = [row["intrinsic_reward_mean"] for row in read_rows(metrics)]
    assert 0 < bonus[-1] < bonus[0]  # the more was seen, the less is new


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_sweep_from_python(tmp_path: Path):
    program = runpy.run_path(str(ROOT / "tune_experiments" / "alpha.py"))
    results = program["sweep"](2048, alphas=[0.0, 0.5], seeds=[0], storage=str(tmp_path))
    assert not results.errors
    found = {result.config["intrinsic_settings"]["alpha"]: result.metrics for result in results}
    assert sorted(found) == [0.0, 0.5]
    for metrics in found.values():
        assert metrics["learners"][program["MODULE"]]["intrinsic_reward_mean"] > 0
