import csv
import json
import re
import threading
from html.parser import HTMLParser

import numpy as np
import pytest
import yaml
from browser import needs_browser, shown

from rllib_rise.envs import generate_maze
from rllib_rise.errors import RunDirectoryError
from rllib_rise.experiments.compare import folder_name, summarise
from rllib_rise.experiments.display import interval_text
from rllib_rise.experiments.report import headline, write_report
from rllib_rise.experiments.report.canvas import method_colors
from rllib_rise.experiments.report.charts import _spread_out
from rllib_rise.experiments.report.curves import _interval
from rllib_rise.experiments.run.exploration import ExplorationTracker
from rllib_rise.experiments.run.run_directory import MetricsFile, RunDirectory, write_json
from rllib_rise.experiments.schema import load_experiment
from rllib_rise.experiments.statistics import bootstrap_interval

SIZE, BUDGET, BATCH = 5, 4000, 500
VOID = {"meta", "br", "link", "img", "hr", "input"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A page about several runs goes into the current folder."""
    monkeypatch.chdir(tmp_path)


def experiment(method="rise", seed=0, env="rise/Maze-v0"):
    intrinsic = {"method": method} | ({} if method == "none" else {"alpha": 0.1, "k": 5})
    return {
        "algorithm": "PPO",
        "env": {"id": env, **({"size": SIZE} if env == "rise/Maze-v0" else {})},
        "seed": seed,
        "stop": {"env_steps": BUDGET, "episode_return": None},
        "rllib": {},
        "intrinsic": intrinsic,
    }


def visited(count):
    visits = np.zeros(SIZE * SIZE, dtype=np.int64)
    visits[:count] = np.arange(count, 0, -1) ** 2
    return visits.reshape(SIZE, SIZE)


def make_run(
    path, *, method="rise", seed=0, cells=20, goal=None, returns=0.5, finished=True, **kwargs
):
    """A run directory as training writes it, without the training."""
    run = RunDirectory(path)
    run.open(experiment(method, seed, **kwargs))
    metrics = MetricsFile(run.metrics)
    iterations = BUDGET // BATCH if finished else 3
    counted = kwargs.get("env", "rise/Maze-v0") == "rise/Maze-v0"
    for iteration in range(1, iterations + 1):
        steps = iteration * BATCH
        row = {"iteration": iteration, "env_steps": steps, "seconds": 0.25 * iteration}
        row["steps_per_second"] = BATCH / 0.25
        if iteration > 1:
            row["episode_return_mean"] = returns * iteration / iterations
        if method != "none":
            row |= {
                "intrinsic_reward_mean": 0.1 / iteration + 0.001 * seed,
                "intrinsic_reward_std": 0.02,
                "intrinsic_lambda": 0.1,
                f"{method.rpartition(':')[2].lower()}_entropy": -1.0 / iteration,
                f"{method.rpartition(':')[2].lower()}_duplicates": 0.25,
            }
        if counted:
            row["coverage"] = cells / SIZE**2 * iteration / iterations
            row["goals_reached"] = float(goal is not None and steps >= goal)
        metrics.append(row)
    tracker = ExplorationTracker()
    if counted:
        tracker.visit_counts = visited(cells)
        tracker.reachable = np.ones((SIZE, SIZE), dtype=bool)
        tracker.first_goal_steps = goal
    if finished:
        tracker.save(run.exploration)
        result = {"env_steps": BUDGET, "seconds": 2.0, "steps_per_second": 2000.0}
        result |= {"return": returns, "first_goal_steps": goal, **tracker.figures()}
        write_json(run.result, result)
    else:
        run.add_checkpoint(2, lambda f: tracker.save(f / "exploration.npz"), env_steps=8, keep=1)
    return path


def make_comparison(out, runs):
    """`runs`: per method, the keyword arguments of `make_run` for each seed."""
    out.mkdir(parents=True)
    asked = {"methods": list(runs), "experiment": experiment()}
    write_json(out / "comparison.json", asked)
    for method, seeds in runs.items():
        for seed, arguments in enumerate(seeds):
            place = out / folder_name(method) / f"seed_{seed}"
            place.parent.mkdir(exist_ok=True)
            make_run(place, method=method, seed=seed, **arguments)
    return out


def none_and_rise(out, none=(6, 7, 8, 7, 6), rise=(20, 21, 22, 21, 23)):
    return make_comparison(
        out,
        {
            "none": [{"cells": cells, "returns": 0.0} for cells in none],
            "rise": [{"cells": cells, "goal": 1000 + 500 * i} for i, cells in enumerate(rise)],
        },
    )


class Page(HTMLParser):
    """Tags, ids and text of a page; fails on tags that are not closed."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text("utf-8")
        self.open, self.attributes, self.ids, self.texts = [], [], [], []
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def figures(self):
        return [v for t, n, v in self.attributes if t == "figure" and n == "id"]

    def links(self):
        names = ("href", "src", "xlink:href", "action", "data", "srcset")
        return [value for _, name, value in self.attributes if name in names]


def read_csv(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def floats(rows, column):
    return [float(row[column]) for row in rows if row[column] != ""]


def test_run_page_shows_the_figures_of_the_run(tmp_path):
    run = make_run(tmp_path / "run", cells=20, goal=1500)
    path = write_report([run])
    assert path == run / "report.html"
    page = Page(path)
    assert "rise/Maze-v0: PPO + rise, seed 0" in page.text
    for fact in ("4,000", "2,000", "0.80", "1,500 steps", "0:02"):
        assert fact in page.text
    assert page.figures == [
        "episode_return",
        "visits",
        "coverage",
        "intrinsic_reward",
        "state_entropy",
        "duplicates",
    ]
    assert "λ is 0.1 throughout" in page.text
    assert "intrinsic.alpha" in page.text
    assert "not finished" not in page.text


def test_pages_are_self_contained_and_well_formed(tmp_path):
    out = none_and_rise(tmp_path / "comparison")
    for paths in ([out], [out / "rise" / "seed_0"]):
        path = write_report(paths)
        page = Page(path)
        assert "http" not in page.source
        assert "<script" not in page.source
        assert "@import" not in page.source
        assert len(page.ids) == len(set(page.ids))
        for link in page.links():
            if link.startswith("#"):
                assert link[1:] in page.ids
            elif not link.startswith("data:image/png;base64,"):
                assert (path.parent / link).exists()
        for target in re.findall(r"url\(#([^)]+)\)", page.source):
            assert target in page.ids


def test_data_of_a_run_equals_its_metrics(tmp_path):
    run = make_run(tmp_path / "run")
    write_report([run])
    rows = RunDirectory(run).read_metrics()
    data = read_csv(run / "report_data" / "intrinsic_reward.csv")
    for column in ("env_steps", "intrinsic_reward_mean", "intrinsic_reward_std"):
        assert floats(data, column) == [row[column] for row in rows]
    returns = read_csv(run / "report_data" / "episode_return.csv")
    assert returns[0]["episode_return_mean"] == ""
    assert floats(returns, "episode_return_mean") == [
        row["episode_return_mean"] for row in rows[1:]
    ]
    visits = np.zeros((SIZE, SIZE))
    for row in read_csv(run / "report_data" / "visits.csv"):
        visits[int(row["row"]), int(row["column"])] = float(row["visits"])
    np.testing.assert_array_equal(visits, visited(20))


def test_environment_without_counts_has_neither_map_nor_coverage(tmp_path):
    page = Page(write_report([make_run(tmp_path / "run", env="CartPole-v1")]))
    assert "visits" not in page.figures
    assert "coverage" not in page.figures
    assert "first goal" not in page.text


def test_run_without_bonus_shows_only_what_it_has(tmp_path):
    page = Page(write_report([make_run(tmp_path / "run", method="none")]))
    assert page.figures == ["episode_return", "visits", "coverage"]


def test_lambda_gets_a_figure_only_if_it_changes(tmp_path):
    run = make_run(tmp_path / "run")
    rows = RunDirectory(run).read_metrics()
    metrics = MetricsFile(RunDirectory(run).metrics)
    for row in rows:
        decayed = {**row, "intrinsic_lambda": 0.1 / row["iteration"]}
        metrics.append({key: value for key, value in decayed.items() if value is not None})
    page = Page(write_report([run]))
    assert "intrinsic_lambda" in page.figures
    assert "throughout" not in page.text


def test_unfinished_run_says_so_and_uses_its_checkpoint(tmp_path):
    page = Page(write_report([make_run(tmp_path / "run", finished=False)]))
    assert "is not finished: 1,500 of 4,000 environment steps" in page.text
    assert "latest return" in page.text
    assert "not yet" in page.text
    assert "visits" in page.figures
    assert "newest checkpoint" in page.text


def test_several_runs_share_the_figures(tmp_path):
    paths = [
        make_run(tmp_path / "a", method="none", cells=6),
        make_run(tmp_path / "b", method="rise", cells=20),
    ]
    path = write_report(paths, tmp_path / "both.html")
    assert path == tmp_path / "both.html"
    page = Page(path)
    assert "2 runs on rise/Maze-v0" in page.text
    for label in ("none, seed 0", "rise, seed 0"):
        # In the table, at a curve and over a heat map.
        assert page.texts.count(label) >= 3
    data = read_csv(tmp_path / "both_data" / "coverage.csv")
    assert [row["run"] for row in data] == ["none, seed 0"] * 8 + ["rise, seed 0"] * 8
    assert "both_data/coverage.csv" in page.links()
    assert "rise train a/config.yaml" in page.text


def test_equal_runs_in_different_places_stay_apart(tmp_path):
    paths = [make_run(tmp_path / "a" / "seed_0"), make_run(tmp_path / "b" / "seed_0", cells=5)]
    path = write_report(paths)
    labels = {row["run"] for row in read_csv(path.parent / "report_data" / "coverage.csv")}
    assert labels == {f"rise, seed 0 ({place})" for place in paths}


def test_comparison_page_agrees_with_the_summary(tmp_path):
    out = none_and_rise(tmp_path / "comparison")
    page = Page(write_report([out]))
    summary = summarise(out)
    for method in ("none", "rise"):
        for figure in ("coverage", "return"):
            assert interval_text(summary["methods"][method]["figures"][figure]) in page.text
    assert interval_text(summary["improvement"]["rise"]["coverage"]) in page.text
    assert "none and rise on rise/Maze-v0" in page.text
    assert "5 seeds per method" in page.text
    assert page.figures == [
        "coverage",
        "episode_return",
        "visits",
        "intrinsic_reward",
        "first_goal",
    ]
    assert "never (5 of 5)" in page.text
    assert "coverage 0.84 (seed" in page.text  # of 20, 21, 22, 21 and 23 of 25 cells
    assert page.text.index("none") < page.text.index("rise visited")


def test_methods_stand_in_the_order_they_were_asked_for(tmp_path):
    out = make_comparison(tmp_path / "c", {"rnd": [{}], "none": [{}], "rise": [{}]})
    rows = re.findall(
        r'<th scope="row">(?:<span[^>]*></span>)?(\w+)</th>', Page(write_report([out])).source
    )
    assert rows[:3] == ["rnd", "none", "rise"]


def test_bands_are_intervals_of_the_iqm_and_stay_in_its_range():
    seeds = np.array([[0.1, 0.5, 1.0], [0.2, 0.6, 0.9], [0.1, 0.7, 1.0], [0.0, 0.4, 1.0]])
    low, high = _interval(seeds, 0.0, 1.0)
    expected = [bootstrap_interval([column]) for column in seeds.T]
    assert low == [max(one.low, 0.0) for one in expected]
    assert high == [min(one.high, 1.0) for one in expected]
    assert high[2] == 1.0 < expected[2].high
    assert _interval(seeds[:1], 0.0, 1.0) is None


def test_data_of_a_comparison(tmp_path):
    out = none_and_rise(tmp_path / "comparison")
    write_report([out])
    data = read_csv(out / "report_data" / "coverage.csv")
    seed = [row for row in data if (row["method"], row["series"]) == ("rise", "seed_3")]
    rows = RunDirectory(out / "rise" / "seed_3").read_metrics()
    assert floats(seed, "coverage") == [row["coverage"] for row in rows]
    last = [row for row in data if (row["method"], row["series"]) == ("rise", "iqm")][-1]
    assert float(last["env_steps"]) == BUDGET
    assert float(last["coverage"]) == pytest.approx(np.mean([21, 22, 21]) / 25)
    goals = read_csv(out / "report_data" / "first_goal.csv")
    assert [row["first_goal_steps"] for row in goals] == [""] * 5 + [
        "1000",
        "1500",
        "2000",
        "2500",
        "3000",
    ]
    visits = read_csv(out / "report_data" / "visits.csv")
    # Of 6, 7, 8, 7 and 6 visited cells, 7 are the median.
    shown = [float(r["visits"]) for r in visits if r["label"] == "none"]
    assert shown == visited(7).ravel().tolist()


def test_the_bonus_of_a_comparison_is_told_as_a_multiple_of_what_it_was_at_first(tmp_path):
    out = none_and_rise(tmp_path / "comparison")
    write_report([out])
    data = read_csv(out / "report_data" / "intrinsic_reward.csv")
    seed = [row for row in data if (row["method"], row["series"]) == ("rise", "seed_3")]
    raw = [
        row["intrinsic_reward_mean"] for row in RunDirectory(out / "rise" / "seed_3").read_metrics()
    ]
    assert raw[-1] < 0.2 * raw[0]
    expected = [value / raw[0] for value in raw]  # the first row is beyond a twentieth already
    assert floats(seed, "intrinsic_reward_mean") == pytest.approx(expected)


def test_a_bonus_that_begins_at_nothing_has_no_multiples(tmp_path):
    out = none_and_rise(tmp_path / "comparison")
    for run in (out / "rise").iterdir():
        metrics = run / "metrics.csv"
        table = read_csv(metrics)
        for row in table:
            row["intrinsic_reward_mean"] = "0.0"
        with metrics.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    assert "intrinsic_reward" not in Page(write_report([out])).figures


def test_the_cost_of_a_bonus_stands_in_the_table(tmp_path):
    out = none_and_rise(tmp_path / "comparison")
    for result in out.glob("rise/*/result.json"):
        figures = json.loads(result.read_text())
        write_json(
            result, figures | {"bonus_seconds": 0.0123, "bonus_megabytes": 1.5, "bonus_left": 0.25}
        )
    page = Page(write_report([out]))
    for text in (
        "bonus, ms per update",
        "12.3",
        "bonus, MB kept",
        "1.5",
        "last over first",
        "0.25",
    ):
        assert text in page.text


def test_comparison_can_be_run_again_from_the_page(tmp_path):
    out = none_and_rise(tmp_path / "comparison")
    page = Page(write_report([out]))
    recipe = "report_data/experiment.yaml"
    assert f"rise compare {recipe} --methods none,rise --seeds 5" in page.text
    assert load_experiment(out / recipe).method == "rise"
    assert yaml.safe_load((out / recipe).read_text()) == experiment()


def test_unfinished_comparison_counts_finished_runs_only(tmp_path):
    out = make_comparison(
        tmp_path / "c",
        {"none": [{"cells": 6}, {"cells": 7}], "rise": [{}, {"finished": False}], "re3": []},
    )
    page = Page(write_report([out]))
    assert "not finished: 3 of 4 runs" in page.text
    assert "No run yet: re3" in page.text
    assert "dashed if unfinished" in page.text
    assert "too few runs for an interval" in page.text


def test_comparison_without_finished_runs_has_curves_and_no_claims(tmp_path):
    unfinished = [{"finished": False}, {"finished": False}]
    out = make_comparison(tmp_path / "c", {"none": unfinished, "rise": unfinished})
    page = Page(write_report([out]))
    assert "0 of 4 runs" in page.text
    assert 'class="headline"' not in page.source
    assert "coverage" in page.figures
    assert not (out / "summary.json").exists()


def test_headline_names_the_winner_only_if_intervals_are_apart(tmp_path):
    clear = headline(summarise(none_and_rise(tmp_path / "clear")))
    assert len(clear) == 1
    assert clear[0].startswith("rise visited 0.85 [")
    assert "more, and the intervals do not overlap" in clear[0]
    assert "rise reached the goal in 5 of 5 runs, none in 0 of 5" in clear[0]
    level = (10, 12, 14, 16, 18)
    same = headline(summarise(none_and_rise(tmp_path / "same", level, level)))
    assert "no difference" in same[0]
    close = headline(summarise(none_and_rise(tmp_path / "close", level, (11, 13, 15, 16, 19))))
    assert "more, but the intervals overlap" in close[0]


def test_headline_says_so_if_the_baseline_wins(tmp_path):
    out = none_and_rise(tmp_path / "c", none=(20, 21, 22, 21, 23), rise=(6, 7, 8, 7, 6))
    sentence = headline(summarise(out))[0]
    assert "less, and the intervals do not overlap" in sentence


def test_headline_of_many_methods_names_the_leader_and_its_rivals(tmp_path):
    runs = {
        "none": [{"cells": c} for c in (5, 6, 7, 6, 5)],
        "re3": [{"cells": c} for c in (19, 21, 22, 20, 22)],
        "rise": [{"cells": c} for c in (20, 21, 23, 21, 22)],
    }
    sentences = headline(summarise(make_comparison(tmp_path / "c", runs)))
    assert sentences[0].startswith("rise has the highest coverage, 0.85 [")
    assert sentences[0].endswith("but not clearly above re3.")
    assert len(sentences) == 3


def test_names_are_escaped(tmp_path):
    method = "bonuses:Big<script>"
    out = make_comparison(tmp_path / "c", {"none": [{}, {}], method: [{}, {}]})
    page = Page(write_report([out]))
    assert "<script>" not in page.source
    assert method in page.text


def test_same_input_gives_the_same_page(tmp_path):
    out = none_and_rise(tmp_path / "comparison")
    first = write_report([out]).read_bytes()
    assert write_report([out]).read_bytes() == first


def test_reports_can_be_written_from_threads(tmp_path):
    runs = [make_run(tmp_path / f"run{i}", seed=i) for i in range(2)]
    expected = [write_report([run]).read_bytes() for run in runs]
    threads = [threading.Thread(target=write_report, args=([run],)) for run in runs]
    for run in runs:
        (run / "report.html").unlink()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(run / "report.html").read_bytes() for run in runs] == expected


def test_walls_of_the_maze_are_drawn(tmp_path):
    from rllib_rise.experiments.report.visits import _walls

    walls = _walls({"id": "rise/Maze-v0", "size": SIZE, "maze_seed": 3})
    passages = generate_maze(SIZE, seed=3).passages
    # Every closed inner side once (both cells see it), the outer ones below and at the right.
    inner = (~passages).sum() - 4 * SIZE
    assert len(walls) == inner / 2 + 2 * SIZE
    assert _walls({"id": "CartPole-v1"}) is None
    assert _walls({"id": "rise/Maze-v0", "no_such_setting": 1}) is None


def test_colors_are_fixed_for_known_methods_and_distinct():
    alone = method_colors(["rise"])
    many = method_colors(["none", "my:Bonus", "rise", "re3", "rnd"])
    assert alone["rise"] == many["rise"]
    assert len(set(many.values())) == 5


def test_labels_are_moved_apart_but_keep_their_order():
    placed = _spread_out([0.5, 0.5, 0.1, 0.52])
    ordered = [placed[i] for i in (2, 0, 1, 3)]
    assert np.diff(ordered).min() >= 0.085 - 1e-9
    assert placed[2] == pytest.approx(0.1)


class TestErrors:
    def test_not_a_run(self, tmp_path):
        with pytest.raises(RunDirectoryError, match=r"is no run, comparison or sweep.*give a dir"):
            write_report([tmp_path])

    def test_nothing_there(self, tmp_path):
        with pytest.raises(RunDirectoryError, match=re.escape(str(tmp_path / "missing"))):
            write_report([tmp_path / "missing"])

    def test_no_rows_yet(self, tmp_path):
        RunDirectory(tmp_path / "run").open(experiment())
        with pytest.raises(RunDirectoryError, match=r"no rows in metrics.csv yet: ask again"):
            write_report([tmp_path / "run"])

    def test_comparison_without_rows(self, tmp_path):
        out = make_comparison(tmp_path / "c", {"none": [], "rise": []})
        with pytest.raises(RunDirectoryError, match="no run with rows yet"):
            write_report([out])

    def test_several_comparisons(self, tmp_path):
        outs = [make_comparison(tmp_path / name, {"rise": [{}]}) for name in "ab"]
        with pytest.raises(RunDirectoryError, match="is a comparison: report on it alone"):
            write_report(outs)

    def test_no_path(self):
        with pytest.raises(RunDirectoryError, match="at least one"):
            write_report([])


@needs_browser
def test_browser_shows_every_figure_without_complaint(tmp_path):
    found = shown(write_report([none_and_rise(tmp_path / "comparison")]))
    assert len(found["figures"]) == 5
    assert min(found["figures"]) > 300
    assert len(found["images"]) >= 2  # the heat maps come before the colour bar
    assert min(found["images"][:2]) > 100
