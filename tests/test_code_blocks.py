"""YAML and Python that the README and the docs show work as they are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import environment
from pages import PAGES, ROOT, blocks, languages, pages_with

from rllib_rise.experiments.schema import build_config, parse_experiment
from rllib_rise.experiments.sweep.schema import load_sweep
from rllib_rise.experiments.yaml_files import parse_yaml

EXPERIMENT = {"env": "CartPole-v1", "stop": {"env_steps": 100}}
# What takes an hour as it is printed, and what needs packages and an account elsewhere.
SHORTER = {
    "sweeps": {
        r"grid_search\(\[0, 1, 2\]\)": "grid_search([0])",
        r"grid_search\(\[0\.0, 0\.1, 0\.5\]\)": "grid_search([0.1])",
        r"lifetime\": 50_000": 'lifetime": 1',
        r"callbacks=\[\n.*?\n        \],": "",  # Weights & Biases, MLflow
    }
}
# What a page says that its code does.
OUTCOMES = {
    "README": """
assert result["learners"]["default_policy"]["intrinsic_reward_mean"] > 0
""",
    "environments": """
car, over = Farthest(gymnasium.make("MountainCar-v0")), False
car.reset(seed=0)
while not over:
    *_, terminated, truncated, info = car.step(0)
    over = terminated or truncated
assert info["episode_figures"] == {"farthest": car.farthest}
""",
    "scripts": """
import torch
assert result["learners"]["default_policy"]["intrinsic_lambda"] == 0.1
assert place({"position": torch.ones(3, 2)}).shape == (3, 2)
""",
    "sweeps": """
assert len(results) == 1 and not results.errors
""",
}


def test_every_block_names_its_language():
    """So that none is left out; text is what nobody runs: formulas, trees of files."""
    for page in PAGES:
        assert languages(page) <= {"python", "sh", "text", "yaml"}, page


def documents(page: str) -> list[str]:
    found = blocks(page, "yaml")
    if page == "environments":  # lines that are choices, not one file
        return [line for text in found for line in text.splitlines()]
    return found


@pytest.mark.parametrize("page", pages_with("yaml"))
def test_yaml(page: str, tmp_path: Path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "sweeps").mkdir()
    for text in documents(page):
        data = parse_yaml(text, page)
        if "search" in data:
            file = tmp_path / "sweeps" / "sweep.yaml"
            file.write_text(text)
            assert load_sweep(file, []).search.num_trials() > 1
        else:
            assert build_config(parse_experiment({**EXPERIMENT, **data}))


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"))
def test_python(page: str, tmp_path: Path):
    """A page's blocks, one after another, are a program."""
    code = "\n".join(blocks(page, "python"))
    for long, short in SHORTER.get(page, {}).items():
        code, found = re.subn(long, short, code, flags=re.DOTALL)
        assert found == 1, f"{page} has no {long} any more"
    program = tmp_path / "page.py"
    program.write_text(code + OUTCOMES.get(page, ""))
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=tmp_path,
        env={**environment(), "HOME": str(tmp_path)},  # where Tune writes
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
