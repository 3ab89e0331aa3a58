"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import gymnasium as gym
import pytest
import torch
from small_algorithms import NAMES
from support_cases import CASES, FOR_ALL, WORKS

from rllib_rise.bonuses import Need, Transitions, method_names, parse_settings, resolve_bonus
from rllib_rise.bonuses.registry import WITHOUT_BONUS as NO_BONUS

SETTINGS = {"rise": {"form": "intrinsic-dim", "k": 5}, "sum": {"parts": [{"method": "count"}]}}
ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]


def load(name: str):
    """A program of the docs folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_settings_tables_are_the_models():
    for page, text in load("settings").pages().items():
        assert text == page.read_text(), "run: python docs/settings.py"


def test_every_method_has_a_section():
    known = set(method_names()) - {"none", "random", "rise"}
    assert known == set(load("settings").METHODS)


def test_the_support_table_has_the_cases_that_are_tested():
    support = load("support")
    cells = {(case.name, name): case.outcome(name) for case in CASES for name in NAMES}
    cells |= {(row, name): WORKS for row in FOR_ALL.values() for name in NAMES}
    assert support.page(cells) == support.PAGE.read_text(), "run: python docs/support.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("method", [name for name in method_names() if name not in NO_BONUS])
def test_every_metric_is_explained(method: str):
    cls = resolve_bonus(method)
    settings = parse_settings(cls, SETTINGS.get(method, {}))
    spaces = {"action_space": gym.spaces.Discrete(2)} if Need.ACTIONS in cls.needs(settings) else {}
    bonus = cls(settings, (2,), **spaces)
    batch = Transitions(
        obs=torch.randn(32, 2),
        next_obs=torch.randn(32, 2),
        actions=torch.arange(32) % 2,
        episode_ids=torch.zeros(32, dtype=torch.int64),
        done=torch.zeros(32, dtype=torch.bool),
    )
    bonus.reward(batch)
    bonus.update(batch)
    page = (ROOT / "docs" / ("rise.md" if method == "rise" else "methods.md")).read_text()
    for name in bonus.metrics():
        shown = f"`{name}`" if method != "sum" else f"`{name[:6]}"
        assert shown in page
