"""Writes the tables of committed sweeps into docs/sweeps.md: `python docs/sweeps.py`.

The page asks for one by `<!-- sweep: NAME -->` and `<!-- end -->`: that of results/sweeps/NAME,
which `rise tune tune_experiments/NAME.yaml` made.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from rllib_rise.entropy import kth_neighbor_distance
from rllib_rise.envs import Maze
from rllib_rise.experiments.schema import Experiment, load_experiment

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "sweeps.md"
RESULTS = ROOT / "results" / "sweeps"
_MARKERS = re.compile(r"(<!-- sweep: ([\w/]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FIGURES = ("trials", "finished", "return", "low", "high")
_COMPUTED = re.compile(r"(<!-- computed: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_METRIC, _WEIGHT = "return", "lambda_0"
_DRAWS, _WALKS = 100_000, 5

Rows = list[dict[str, str]]


def table(name: str) -> str:
    """A sweep's settings, and how surely its parameters matter."""
    settings, trials = _read(name, "settings"), _read(name, "trials")
    parameters = [column for column in settings[0] if column not in _FIGURES]
    if len(parameters) == 1:
        return _list(settings, parameters[0]) + _tests(trials, parameters)
    return _grid(settings, *parameters) + _tests(trials, parameters)


def _read(name: str, file: str) -> Rows:
    with (RESULTS / name / f"{file}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def _list(settings: Rows, parameter: str) -> str:
    rows = sorted(settings, key=lambda row: _order(row[parameter]))
    lines = [f"| {parameter} | return |", "|---|---|"]
    lines += [f"| {row[parameter]} | {_cell(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _grid(settings: Rows, down: str, across: str) -> str:
    cells = {(row[down], row[across]): _cell(row) for row in settings}
    columns = sorted({key[1] for key in cells}, key=_order)
    lines = [f"| {down} | {' | '.join(f'{across} = {column}' for column in columns)} |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for value in sorted({key[0] for key in cells}, key=_order):
        lines.append(f"| {value} | {' | '.join(cells[value, column] for column in columns)} |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, str]) -> str:
    estimate, low, high = (float(row[key]) for key in (_METRIC, "low", "high"))
    return f"{estimate:.2f} [{low:.2f}, {high:.2f}]"


def _tests(trials: Rows, parameters: list[str]) -> str:
    """Whether each parameter matters; and where another is the weight, at each weight too."""
    told = [f"{parameter} {_friedman(trials, parameter)}" for parameter in parameters]
    for parameter in [p for p in parameters if p != _WEIGHT and _WEIGHT in parameters]:
        for value in sorted({row[_WEIGHT] for row in trials}, key=_order):
            some = [row for row in trials if row[_WEIGHT] == value]
            told.append(f"{parameter} at {_WEIGHT} = {value} {_friedman(some, parameter)}")
    return f"\nWhether it matters: {', '.join(told)}.\n"


def _friedman(trials: Rows, parameter: str) -> str:
    """Friedman's test by permutation: are the values of a parameter ordered alike by the seeds?

    Each seed is one block, its figure for a value the mean over all other parameters. Under the
    hypothesis that the value does not matter, all orders within a seed are equally likely.
    """
    figures: dict[str, dict[str, list[float]]] = {}
    for row in trials:
        own = figures.setdefault(row["seed"], {})
        own.setdefault(row[parameter], []).append(float(row[_METRIC]))
    values = sorted({row[parameter] for row in trials}, key=_order)
    means = np.array([[np.mean(own[value]) for value in values] for own in figures.values()])
    ranks = stats.rankdata(means, axis=1)
    draws = np.random.default_rng(0).permuted(np.tile(ranks, (_DRAWS, 1, 1)), axis=2)
    spread = draws.sum(axis=1).var(axis=1)
    as_large = np.count_nonzero(spread >= ranks.sum(axis=0).var() * (1 - 1e-9))
    return f"p = {(1 + as_large) / (1 + _DRAWS):.2g}"


def copies() -> str:
    """What alpha has to act on: distances within batches of random walks in this maze."""
    experiment = load_experiment(ROOT / "configs" / "maze.yaml")
    rho = [_walk(experiment, seed) for seed in range(_WALKS)]
    zero = np.mean([np.mean(one == 0) for one in rho])
    alike = np.mean([np.corrcoef(one, one**0.1)[0, 1] for one in rho])
    return (
        f"In batches of random walks, {zero:.0%} of the states have their fifth neighbour at "
        f"distance 0, and the bonuses of alpha = 0 and 0.9 correlate at {alike:.2f}.\n"
    )


def spread() -> str:
    """How much seeds differ where nothing else does, and how many tests the page prints."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in _read("alpha", "trials"):
        groups.setdefault((row["alpha"], row["lambda_0"]), []).append(float(row[_METRIC]))
    deviation = np.sqrt(np.mean([np.var(values, ddof=1) for values in groups.values()]))
    tests = sum(table(name).count("p = ") for name in shown())
    return (
        f"{tests} p-values are printed, none is corrected (Bonferroni would ask for "
        f"{0.05 / tests:.1g}). With one setting, the returns of the seeds have a standard "
        f"deviation of {deviation:.2f}.\n"
    )


def _walk(experiment: Experiment, seed: int) -> np.ndarray:
    """Distances to the k-th neighbour in a batch; its environments are in all parts of episodes."""
    steps, points = experiment.rllib["rollout_fragment_length"], []
    for number in range(experiment.rllib["num_envs_per_env_runner"]):
        env = Maze(**experiment.env.kwargs)
        env.action_space.seed(1000 * seed + number)
        seen = [env.reset(seed=seed)[0]]
        while len(seen) < steps * (1 + number % 6):
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            seen.append(env.reset()[0] if terminated or truncated else observation)
        points += seen[-steps:]
    k = experiment.intrinsic["k"]
    return kth_neighbor_distance(torch.from_numpy(np.stack(points)), k).numpy()


def _order(value: str) -> tuple[bool, float, str]:
    try:
        return False, float(value), ""
    except ValueError:  # `auto`
        return True, 0.0, value


def page() -> str:
    """The page with fresh tables."""
    makers = {maker.__name__: maker for maker in (copies, spread)}
    text = _COMPUTED.sub(lambda match: match[1] + makers[match[2]]() + match[3], PAGE.read_text())
    return _MARKERS.sub(lambda match: match[1] + table(match[2]) + match[3], text)


def shown() -> list[str]:
    """The sweeps that the page asks for."""
    return [match[2] for match in _MARKERS.finditer(PAGE.read_text())]


if __name__ == "__main__":
    PAGE.write_text(page())
