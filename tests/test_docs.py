"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from small_algorithms import NAMES
from support_cases import CASES, FOR_ALL, WORKS

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]


def load(name: str):
    """A program of the docs folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_settings_table_is_the_models():
    settings = load("settings")
    assert settings.page() == settings.PAGE.read_text(), "run: python docs/settings.py"


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


def test_every_metric_of_rise_is_explained():
    import torch

    from rllib_rise.bonuses import RISE, Transitions, parse_settings

    bonus = RISE(parse_settings(RISE, {"form": "intrinsic-dim", "k": 5}), (2,))
    batch = Transitions(obs=torch.randn(32, 2))
    bonus.reward(batch)
    bonus.update(batch)
    page = (ROOT / "docs" / "rise.md").read_text()
    for name in bonus.metrics():
        assert f"`{name}`" in page
