"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]


def test_the_settings_table_is_the_models():
    spec = importlib.util.spec_from_file_location("settings", ROOT / "docs" / "settings.py")
    settings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(settings)
    assert settings.page() == settings.PAGE.read_text(), "run: python docs/settings.py"


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
