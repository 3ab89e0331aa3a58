"""`rise reproduce`: its tables against what they are made of, and its files."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command_line import rise
from scipy import stats

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.reproduce import deep as deep_module
from rllib_rise.experiments.reproduce import maze as maze_module
from rllib_rise.experiments.reproduce import theory as theory_module
from rllib_rise.experiments.reproduce.contours import contours, triangle
from rllib_rise.experiments.reproduce.deep import SUITES, Plan, deep, draw_curves, paper_table
from rllib_rise.experiments.reproduce.maze import ARMS, BASELINE, maze, pairs, summary
from rllib_rise.experiments.reproduce.paper_tables import ATARI, BULLET, METHODS
from rllib_rise.experiments.reproduce.record import read_rows, write_about
from rllib_rise.experiments.reproduce.theory import theory
from rllib_rise.tabular import discrete_renyi_entropy, expected_cover_time
from rllib_rise.tabular.mdp import random_mdp

CONFIGS = Path(__file__).parents[2] / "configs"


def silent(line: str) -> None:
    """What is being done is of no interest here."""


def is_a_picture(path: Path) -> bool:
    return ElementTree.parse(path).getroot().tag.endswith("svg")


def test_results_say_where_they_come_from(tmp_path: Path):
    write_about(tmp_path / "new", "maze", "small")
    about = json.loads((tmp_path / "new" / "about.json").read_text())
    assert about["command"] == "rise reproduce maze --scale small"
    assert about["versions"]["packages"]["torch"]


def test_the_triangle_holds_distributions_without_zeros():
    p = triangle(20)
    assert p.sum(axis=1) == pytest.approx(1)
    assert p.min() > 0
    assert len(p) == 20 * 21 / 2


def test_contours(tmp_path: Path):
    ((_, rows),) = contours(tmp_path, "small", silent)
    assert is_a_picture(tmp_path / "contours.svg")
    p = triangle(40)
    cover = -expected_cover_time(p)
    for row in rows:
        expected = stats.spearmanr(discrete_renyi_entropy(p, row["alpha"]), cover).statistic
        # Symmetric distributions are equal but for rounding, which ranks them.
        assert row["rank correlation"] == pytest.approx(expected, abs=1e-4)
    assert [row["alpha"] for row in read_rows(tmp_path / "contours.csv")] == [
        row["alpha"] for row in rows
    ]


def test_theory(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(theory_module, "_EPSILON", 0.5)
    processes = {"few states": random_mdp(4, 2, gamma=0.9, seed=0)}
    monkeypatch.setattr(theory_module, "processes", lambda scale: processes)
    (_, bounds), (_, covers), (_, smoothing) = theory(tmp_path, "small", silent)
    assert is_a_picture(tmp_path / "theory.svg")
    for row in bounds:
        for kind in ("exact", "perturbed"):
            assert 0 <= row[f"needed, {kind}"] <= row["theorem"]
            assert row[f"short of the best, {kind}"] <= 0.5
    assert len(bounds) == len(covers) == 3
    assert all(row["expected draws"] >= 4 * (1 + 1 / 2 + 1 / 3 + 1 / 4) - 1e-9 for row in covers)
    # With a small order, a smoothing that does not matter makes the theorem say nothing.
    assert smoothing[0]["theorem"] > 1e20


def test_maze_runs_only_what_is_missing(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(maze_module._SIZES, "small", (4,))
    monkeypatch.setitem(maze_module._RUNS, "small", 3)
    calls: list[tuple] = []
    monkeypatch.setattr(maze_module, "ProcessPoolExecutor", lambda *a, **k: Here(calls))
    maze(tmp_path, "small", silent)
    first = (tmp_path / "runs.csv").read_text()
    rows = read_rows(tmp_path / "runs.csv")
    assert len(rows) == 2 * len(ARMS) * 3
    assert is_a_picture(tmp_path / "maze.svg")
    kept = [line for line in first.splitlines() if not line.startswith("portals")]
    (tmp_path / "runs.csv").write_text("\n".join(kept) + "\n")
    calls.clear()
    maze(tmp_path, "small", silent)
    assert [arguments[0] for arguments in calls] == ["portals"]
    assert (tmp_path / "runs.csv").read_text() == first


class Here:
    """An executor that works at once, and says at what."""

    def __init__(self, calls: list) -> None:
        self._calls = calls

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def submit(self, call, *arguments):
        from concurrent.futures import Future

        self._calls.append(arguments)
        future: Future = Future()
        future.set_result(call(*arguments))
        return future


def test_the_mazes_table_counts_what_was_given_up_and_compares_in_pairs():
    steps = {BASELINE: [100, 200, 300, 400, ""], "new": [50, 100, 150, 500, 80]}
    rows = [
        {"layout": "perfect", "size": 5, "arm": arm, "maze": i, "steps": s}
        for arm, values in steps.items()
        for i, s in enumerate(values)
    ]
    base, new = summary(rows)
    cap = 100 * 10 * 25
    assert base["given up"] == 1
    assert base["mean"] == round((1000 + cap) / 5)
    assert (base["median"], new["median"]) == (300, 100)
    assert new["better than Q-learning"] == 0.8
    ratios = np.log([50 / 100, 100 / 200, 150 / 300, 500 / 400, 80 / cap])
    assert new["p"] == pytest.approx(stats.wilcoxon(ratios).pvalue)


def test_pairs_are_runs_in_the_same_maze(monkeypatch):
    monkeypatch.setattr(maze_module, "PAIRS", (("a", "b"),))
    steps = {"a": [10, 20, 30, ""], "b": [11, 20, 29, 50]}
    rows = [
        {"layout": "portals", "size": 5, "arm": arm, "maze": i, "steps": s}
        for arm, values in steps.items()
        for i, s in reversed(list(enumerate(values)))
    ]
    (found,) = pairs(rows)
    assert (found["better"], found["worse"]) == (0.25, 0.5)


def test_every_task_of_the_paper_has_a_config():
    for suite in SUITES.values():
        for task in suite.printed:
            assert (CONFIGS / suite.folder / f"{task}.yaml").exists()
        for plans in suite.plans.values():
            assert all(set(plan.tasks) <= set(suite.printed) for plan in plans)
    assert all(len(numbers) in (0, len(METHODS)) for numbers in (ATARI | BULLET).values())


def test_the_table_is_the_papers_with_ours_above_it():
    runs = [
        {"task": "hopper", "method": method, "seed": seed, "return": value}
        for method, values in {"none": (1000, 2000, 3000), "rise": (2500,)}.items()
        for seed, value in enumerate(values)
    ]
    ours, middle, printed = paper_table(SUITES["bullet"], runs)
    assert ours["PPO"] == "2.000 ± 1.000"
    assert ours["PPO+RISE"] == "2.500"
    assert ours["PPO+RE3"] == ""
    assert middle["PPO"].startswith("2.000 [")
    assert printed["PPO+RISE"] == "2.44 ± 0.04"


def test_curves_are_drawn_for_methods_that_ran():
    rows = [
        {"task": task, "method": "rise", "seed": seed, "env_steps": s, "return": 1.0}
        for task in ("hopper", "ant")
        for seed in (0, 1)
        for s in (10, 20, 30)
    ]
    svg = draw_curves(rows)
    assert "PPO+RISE" in svg
    assert "PPO+RE3" not in svg


def test_without_configs_it_says_where_to_run(tmp_path: Path):
    with pytest.raises(ConfigError, match="run this in the project's folder"):
        deep("bullet", tmp_path, "small", silent, configs=tmp_path / "configs")


@pytest.mark.slow
def test_the_command_runs_the_mazes_in_processes(tmp_path: Path):
    done = rise(tmp_path, "reproduce", "maze", "--out", "here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "steps until every cell was seen, perfect mazes of 10 x 10" in done.stdout
    assert len(read_rows(tmp_path / "here" / "runs.csv")) == 2 * 2 * len(ARMS) * 20
    assert "--scale small" in (tmp_path / "here" / "about.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mazes",), "'mazes' is no target: contours, theory, maze, atari, bullet, throughput"),
        (("maze", "--scale", "big"), "--scale big is none of small, workstation, paper"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_ones(tmp_path: Path, arguments, words: str):
    failed = rise(tmp_path, "reproduce", *arguments)
    assert failed.returncode == 2
    assert words in " ".join(failed.stdout.split())


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_table_is_run_and_run_again_from_what_is_there(tmp_path: Path, monkeypatch):
    plan = Plan(
        ("inverted_pendulum",),
        ("none", "rise"),
        env_steps=4096,
        seeds=1,
        changes=("intrinsic.warmup_steps=1024",),
    )
    monkeypatch.setitem(deep_module.SUITES["bullet"].plans, "small", (plan,))
    ((title, table),) = deep("bullet", tmp_path, "small", silent, configs=CONFIGS)
    assert "2,441 times fewer than the paper's" in title
    assert table[0]["task"] == "inverted_pendulum"
    runs = read_rows(tmp_path / "runs.csv")
    assert [(run["method"], run["seed"]) for run in runs] == [("none", 100), ("rise", 100)]
    assert is_a_picture(tmp_path / "curves.svg")
    written = (tmp_path / "inverted_pendulum/rise/seed_100/metrics.csv").stat().st_mtime_ns
    deep("bullet", tmp_path, "small", silent, configs=CONFIGS)
    again = (tmp_path / "inverted_pendulum/rise/seed_100/metrics.csv").stat().st_mtime_ns
    assert again == written
