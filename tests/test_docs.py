"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest
import torch
from small_algorithms import NAMES
from support_cases import CASES, FOR_ALL, WORKS

from rllib_rise.bonuses import Need, Transitions, method_names, parse_settings, resolve_bonus
from rllib_rise.bonuses.registry import WITHOUT_BONUS as NO_BONUS
from rllib_rise.rllib.runtime import LOGGED, IntrinsicRuntime

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


def test_the_site_can_be_built(tmp_path: Path):
    """Strictly: a link that leads nowhere is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    index = (tmp_path / "index.html").read_text()
    assert (tmp_path / "files" / "results" / "demo" / "visits.svg").exists()
    assert 'src="files/results/demo/visits.svg"' in index
    assert 'href="scripts.html"' in index


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
    explained = load("settings").logged(cls)
    for name in bonus.metrics():
        if method == "sum":  # the parts' own
            name = "sum_0_mean" if name == "sum_0_mean" else re.sub(r"^sum_0_.*", "sum_0_*", name)
        assert name in explained
    if method not in ("rise", "sum"):  # whose figures depend on settings and data
        assert explained.keys() == bonus.metrics().keys()


def test_the_metrics_of_every_bonus_are_explained():
    """What the runtime logs beside a bonus' own figures."""
    told: dict[str, float] = {}

    class Logger:
        def log_value(self, key, value, **kwargs):
            told[key[1]] = value

    cls = resolve_bonus("count")
    runtime = IntrinsicRuntime(cls, parse_settings(cls, {}))
    runtime.add_module("one", gym.spaces.Box(-1, 1, (2,)))
    runtime.apply(
        "one",
        {"obs": torch.randn(8, 2), "rewards": torch.zeros(8), "new_obs": torch.randn(8, 2)},
        None,
        Logger(),
    )
    assert told.keys() - cls.logged.keys() == LOGGED.keys()
