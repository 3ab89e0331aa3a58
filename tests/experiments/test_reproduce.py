"""`rise reproduce`: its tables against what they are made of, and its files."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command_line import refused, rise
from scipy import stats

from rllib_rise.errors import ConfigError
from rllib_rise.experiments.report.panels import standalone
from rllib_rise.experiments.reproduce import deep as deep_module
from rllib_rise.experiments.reproduce import maze as maze_module
from rllib_rise.experiments.reproduce import theory as theory_module
from rllib_rise.experiments.reproduce.contours import contours, triangle
from rllib_rise.experiments.reproduce.contours import draw as draw_contours
from rllib_rise.experiments.reproduce.deep import SUITES, Plan, deep, draw_curves, paper_table
from rllib_rise.experiments.reproduce.maze import ARMS, BASELINE, maze, pairs, summary
from rllib_rise.experiments.reproduce.paper_tables import ATARI, BULLET, METHODS
from rllib_rise.experiments.reproduce.record import open_folder
from rllib_rise.experiments.reproduce.theory import best_distribution, cover_time, theory
from rllib_rise.experiments.statistics import bootstrap_interval
from rllib_rise.experiments.tables import read_rows
from rllib_rise.tabular import FiniteMDP, discrete_renyi_entropy, expected_cover_time, mepc
from rllib_rise.tabular.maze_learning import Arm
from rllib_rise.tabular.mdp import deterministic_mdp, random_mdp
from rllib_rise.tabular.mepc import SmoothedEntropy, largest_objective

CONFIGS = Path(__file__).parents[2] / "configs"


def silent(line: str, share: float | None = None) -> None:
    """What is being done is of no interest here."""


def is_a_picture(path: Path) -> bool:
    return ElementTree.parse(path).getroot().tag.endswith("svg")


def test_results_say_where_they_come_from(tmp_path: Path):
    out = tmp_path / "new"
    open_folder(out, "maze", "small", keep=True)
    about = json.loads((out / "about.json").read_text())
    assert about["command"] == "rise reproduce maze --scale small"
    assert about["versions"]["packages"]["torch"]
    assert about["versions"]["processor"]


def test_results_that_are_kept_stay_those_of_the_command_that_began_them(tmp_path: Path):
    open_folder(tmp_path, "maze", "small", keep=True)
    before = (tmp_path / "about.json").stat().st_mtime_ns
    open_folder(tmp_path, "maze", "small", keep=True)
    assert (tmp_path / "about.json").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="holds results of `rise reproduce maze --scale small`"):
        open_folder(tmp_path, "maze", "workstation", keep=True)
    open_folder(tmp_path, "maze", "workstation", keep=False)
    with pytest.raises(ConfigError, match="is a file"):
        open_folder(tmp_path / "about.json", "maze", "small", keep=True)


def test_the_triangle_holds_distributions_without_zeros():
    p = triangle(20)
    assert p.sum(axis=1) == pytest.approx(1)
    assert p.min() > 0
    assert len(p) == 20 * 21 / 2


def test_contours(tmp_path: Path):
    (_, order), (_, size) = contours(tmp_path, "small", silent)
    assert is_a_picture(tmp_path / "contours.svg")
    assert (
        standalone(draw_contours(read_rows(tmp_path / "contours.csv"))) + "\n"
        == (tmp_path / "contours.svg").read_text()
    )
    p = triangle(100)
    cover, rare = -expected_cover_time(p), p.min(axis=1) < 0.05
    shannon = discrete_renyi_entropy(p, 1)
    (row,) = (row for row in order if row["entropy"] == "Shannon (α = 1)")
    # Symmetric distributions are equal but for rounding, which ranks them.
    for column, chosen in (("all distributions", rare | True), ("a state below 0.05", rare)):
        expected = stats.spearmanr(shannon[chosen], cover[chosen]).statistic
        assert row[column] == pytest.approx(expected, abs=1e-4)
    (row,) = (row for row in size if row[""] == "Shannon (α = 1)")
    left = 0.01 * np.log(0.01) + 0.99 * np.log(0.495)
    assert row["x = 0.01"] == pytest.approx(np.log(3) + left)


@pytest.fixture(name="two_states")
def two_states_process() -> FiniteMDP:
    """One action stays, the other changes: any share from (1 - gamma) on is possible."""
    return deterministic_mdp(np.array([[0, 1], [1, 0]]), start=0, gamma=0.9)


@pytest.mark.parametrize("alpha", [0.1, 0.9, 1.0])
def test_the_best_distribution_of_two_states_is_the_equal_one(two_states, alpha: float):
    assert best_distribution(two_states, alpha) == pytest.approx([0.5, 0.5], abs=1e-3)
    assert cover_time(two_states, alpha)["expected draws"] == pytest.approx(3, abs=1e-3)


def test_iterations_are_those_of_the_algorithm(monkeypatch):
    monkeypatch.setattr(theory_module, "_EPSILON", 0.02)
    mdp = random_mdp(5, 2, gamma=0.8, seed=2)
    found = theory_module.iterations(mdp, 0.5)
    objective = SmoothedEntropy(0.5, 0.1)
    assert found["theorem"] == pytest.approx(objective.iterations(0.02))
    _, best = largest_objective(mdp, objective, tolerance=1e-4)
    objectives = mepc(mdp, alpha=0.5, sigma=0.1, epsilon=0.02).objectives
    needed = found["needed, exact"]
    assert 0 < needed < found["theorem"]
    assert objectives[needed - 1] < best - 0.02 <= objectives[needed:].min()
    assert found["short of the best, exact"] == pytest.approx(best - objectives[-1])
    # Errors cost something.
    assert found["short of the best, perturbed"] > found["short of the best, exact"]
    assert 0 <= found["lost by smoothing"] < objective.smoothing_gap(5)


def test_theory(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(theory_module, "_EPSILON", 0.5)
    processes = {"few states": random_mdp(4, 2, gamma=0.9, seed=0)}
    monkeypatch.setattr(theory_module, "processes", lambda scale: processes)
    (_, bounds), (_, covers), (_, smoothing) = theory(tmp_path, "small", silent)
    assert is_a_picture(tmp_path / "theory.svg")
    assert [row["alpha"] for row in bounds] == [0.1, 0.5, 0.9]
    assert [row["alpha"] for row in covers] == [0.1, 0.5, 0.9, 1.0]
    # With a small order, a smoothing that does not matter makes the theorem say nothing.
    assert smoothing[0]["theorem"] > 1e20


def test_the_arms_are_those_that_the_page_describes():
    arms = {arm.name: arm for arm in ARMS}
    assert len(arms) == len(ARMS) == 19
    assert arms["Q-learning"] == Arm("Q-learning")
    assert arms["Q-learning, no goal reward"].goal_reward == 0
    for name, arm in arms.items():
        form, _, method = name.partition(": ")
        if not method:
            continue
        alpha = float(method.partition(" ")[2]) if method.startswith("RISE") else 1.0
        assert arm.bonus == ("knn" if form == "F" else "counts")
        assert arm.alpha == alpha
        assert arm.coefficient == (alpha if form == "G" else 1.0)
        assert arm.normalize == (form == "H/sd")
        assert arm.goal_reward == 1


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
    assert (new["better than Q-learning"], new["worse"]) == (0.8, 0.2)
    expected = bootstrap_interval([np.array([50, 100, 150, 500, 80])], np.mean)
    assert (new["low"], new["high"]) == (round(expected.low), round(expected.high))
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
    assert found["ratio"] == pytest.approx((60 + 25_000) / 110)
    assert found["low"] < found["ratio"] < found["high"]


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


def test_a_run_without_an_ended_episode_is_left_out():
    runs = [
        {"task": "hopper", "method": "none", "seed": seed, "return": value}
        for seed, value in enumerate((1000.0, "", 3000.0))
    ]
    assert paper_table(SUITES["bullet"], runs)[0]["PPO"] == "2.000 ± 1.414"


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
        (("maze", "--address", "auto"), "maze runs on this machine, without Ray"),
        ((), "Missing argument"),
        (("atari",), "configs/atari does not exist: run this in the project's folder"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_ones(
    tmp_path: Path, monkeypatch, capsys, arguments, words: str
):
    assert words in refused(tmp_path, monkeypatch, capsys, "reproduce", *arguments)


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
    assert title.endswith("times fewer than the paper's; 1 seed")
    assert table[0]["task"] == "inverted_pendulum"
    runs = read_rows(tmp_path / "runs.csv")
    assert [(run["method"], run["seed"]) for run in runs] == [("none", 100), ("rise", 100)]
    assert is_a_picture(tmp_path / "curves.svg")
    written = (tmp_path / "inverted_pendulum/rise/seed_100/metrics.csv").stat().st_mtime_ns
    deep("bullet", tmp_path, "small", silent, configs=CONFIGS)
    again = (tmp_path / "inverted_pendulum/rise/seed_100/metrics.csv").stat().st_mtime_ns
    assert again == written
