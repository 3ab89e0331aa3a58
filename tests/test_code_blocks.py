"""YAML that the README and the docs show is accepted as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rllib_rise.experiments.plain_data import parse_yaml
from rllib_rise.experiments.schema import build_config, parse_experiment
from rllib_rise.experiments.sweep.schema import load_sweep

ROOT = Path(__file__).parent.parent
PAGES = {page.stem: page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXPERIMENT = {"env": "CartPole-v1", "stop": {"env_steps": 100}}


def blocks(page: str) -> list[str]:
    found = BLOCK.findall(PAGES[page].read_text())
    if page == "environments":  # lines that are choices, not one file
        return [line for body in found for line in body.splitlines()]
    return found


@pytest.mark.parametrize("page", [name for name in PAGES if blocks(name)])
def test_yaml(page: str, tmp_path: Path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "sweeps").mkdir()
    for text in blocks(page):
        data = parse_yaml(text, page)
        if "search" in data:
            file = tmp_path / "sweeps" / "sweep.yaml"
            file.write_text(text)
            assert load_sweep(file, []).search.num_trials() > 1
        else:
            assert build_config(parse_experiment({**EXPERIMENT, **data}))
