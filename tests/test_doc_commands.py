"""Commands that the README and the docs show work as they are printed, with budgets of seconds.

A page's commands run one after another in a folder that is like the project's, for some need what
others have left.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_line import rise
from pages import ROOT, blocks, commands, pages_with
from short_commands import shortened

# What one machine cannot do, or a test should not.
NOT_RUN = {
    r"rise submit": "needs a cluster that takes jobs; tests/cluster has one",
    r"--address auto": "needs a cluster; tests/cluster has one",
    r"^(ray|kubectl) |sbatch": "need machines elsewhere; see tests/test_cluster_files.py",
    r"^make ": "makes an environment of its own; then it runs the tests, or compares as others do",
    r"^\. \.venv": "lets a shell find `rise`; tests call it by its module",
    r"pip install": "changes the environment that the tests run in",
}
SMALL_SWEEP = {"grid: [1, 2, 3, 5, 8, 15, auto]": "grid: [5, auto]", "seeds: 5": "seeds: 1"}
PROGRAM = re.compile(r"(\.venv/bin/)?rise ")


def is_run(line: str) -> bool:
    return not any(re.search(pattern, line) for pattern in NOT_RUN)


RUN = {page: [line for line in commands(page) if is_run(line)] for page in pages_with("sh")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The project's, as far as commands need it, with a smaller sweep."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    sweep = (ROOT / "tune_experiments" / "k.yaml").read_text()
    for long, short in SMALL_SWEEP.items():
        assert long in sweep
        sweep = sweep.replace(long, short)
    (tmp_path / "tune_experiments").mkdir()
    (tmp_path / "tune_experiments" / "k.yaml").write_text(sweep)
    [bonus] = blocks("bonuses", "python")
    (tmp_path / "my_bonus.py").write_text(bonus)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(0)  # every command has a limit of its own
@pytest.mark.parametrize("page", [page for page in RUN if RUN[page]])
def test_commands(page: str, folder: Path):
    for line in RUN[page]:
        done = rise(folder, *shortened(*shlex.split(line, comments=True)[1:]))
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", RUN)
def test_nothing_but_rise_is_run(page: str):
    for line in RUN[page]:
        assert PROGRAM.match(line), f"{line}: say in NOT_RUN why a test cannot run it"


@pytest.mark.parametrize("pattern", NOT_RUN)
def test_what_is_not_run_is_still_shown(pattern: str):
    shown = [line for page in pages_with("sh") for line in commands(page)]
    assert any(re.search(pattern, line) for line in shown)
