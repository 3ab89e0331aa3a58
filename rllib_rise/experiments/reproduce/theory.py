"""The theorem on MEPC: what it promises, what was needed, and what alpha does.

For each process and order: the theorem's T and the number of iterations after which the mixture
was, and stayed, within epsilon of the best, with exact oracles and with ones that are wrong at
random, within what the theorem allows. Then the distributions that maximise the entropy of each
order, and how long it would take to see every state by drawing from them.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from rllib_rise.envs.maze_structure import generate_maze
from rllib_rise.experiments.report.canvas import FULL, as_svg, house_style, method_colors
from rllib_rise.experiments.reproduce.record import OnProgress, write_figure
from rllib_rise.experiments.tables import read_rows, write_rows
from rllib_rise.tabular import expected_cover_time, mepc
from rllib_rise.tabular.entropies import FloatArray
from rllib_rise.tabular.mdp import FiniteMDP, deterministic_mdp, random_mdp
from rllib_rise.tabular.mepc import (
    Oracles,
    PerturbedOracles,
    SmoothedEntropy,
    SmoothedShannon,
    largest_objective,
    smoothing_for,
)

_ORDERS: dict[str, tuple[float, ...]] = {"small": (0.1, 0.5, 0.9)}
_ORDERS["workstation"] = _ORDERS["paper"] = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9)
_SIGMA, _EPSILON, _TOLERANCE = 0.1, 0.1, 1e-4
# So little smoothing that the distributions are those of the entropy itself; the tolerance is
# finer, as what is compared there are distributions, and objectives are flat around a maximum.
_SLIGHT, _FINE = 1e-4, 1e-6
_SHANNON = 1.0

Row = dict[str, Any]


def processes(scale: str) -> dict[str, FiniteMDP]:
    """Processes in which no policy can be everywhere equally often: some states are hard to reach.

    With a discount gamma the start has at least 1 - gamma of the time.
    """
    found = {
        "river of 8": _river(8, gamma=0.8),
        "random, 10 states": random_mdp(10, 3, gamma=0.8, seed=0),
    }
    if scale != "small":
        maze = generate_maze(4, "loops", loop_fraction=0.2, seed=0)
        found["maze of 16"] = deterministic_mdp(maze.transitions(), start=0, gamma=0.8)
        found["random, 20 states"] = random_mdp(20, 3, gamma=0.8, seed=1)
    return found


def _river(length: int, *, gamma: float) -> FiniteMDP:
    """A chain: back is easy, ahead succeeds in one of three attempts and may end further back."""
    transitions = np.zeros((length, 2, length))
    for place in range(length):
        back, ahead = max(place - 1, 0), min(place + 1, length - 1)
        transitions[place, 0, back] = 1
        for end, chance in ((back, 0.07), (place, 0.6), (ahead, 0.33)):
            transitions[place, 1, end] += chance
    return FiniteMDP(transitions, np.eye(length)[0], gamma)


def theory(out: Path, scale: str, on_progress: OnProgress) -> list[tuple[str, list[Row]]]:
    """Run MEPC, write the tables and the figure."""
    found = processes(scale)
    bounds, covers = list[Row](), list[Row]()
    orders = (*_ORDERS[scale], _SHANNON)
    for number, (name, alpha) in enumerate(itertools.product(found, orders)):
        on_progress(f"MEPC: {name}, alpha {alpha}", number / (len(found) * len(orders)))
        if alpha != _SHANNON:  # for which the theorem is Hazan's, and another one
            bounds.append({"process": name, "alpha": alpha, **iterations(found[name], alpha)})
        covers.append({"process": name, "alpha": alpha, **cover_time(found[name], alpha)})
    write_rows(out / "iterations.csv", bounds)
    write_rows(out / "cover_times.csv", covers)
    drawn = (read_rows(out / f"{name}.csv") for name in ("iterations", "cover_times"))
    write_figure(out / "theory.svg", draw(*drawn))
    smoothing = [_honest_bound(alpha) for alpha in _ORDERS[scale]]
    write_rows(out / "smoothing.csv", smoothing)
    return [
        (f"iterations, sigma = {_SIGMA}, epsilon = {_EPSILON}", bounds),
        ("how long it takes to see every state, by the best distribution of each order", covers),
        (f"the theorem's T if smoothing itself may cost {_EPSILON} in 16 states", smoothing),
    ]


def iterations(mdp: FiniteMDP, alpha: float) -> Row:
    """The theorem's T, the iterations that were needed, and what the smoothing costs."""
    objective = SmoothedEntropy(alpha, _SIGMA)
    smoothed, best = largest_objective(mdp, objective, tolerance=_TOLERANCE)
    perturbed = PerturbedOracles(0.1 * _EPSILON, 0.1 * _EPSILON / objective.smoothness, seed=0)
    row: Row = {"theorem": objective.iterations(_EPSILON)}
    kinds: dict[str, Oracles] = {"exact": Oracles(), "perturbed": perturbed}
    for name, oracles in kinds.items():
        mixed = mepc(mdp, alpha=alpha, sigma=_SIGMA, epsilon=_EPSILON, oracles=oracles)
        missed = np.flatnonzero(mixed.objectives < best - _EPSILON)
        row[f"needed, {name}"] = int(missed[-1]) + 1 if len(missed) else 0
        row[f"short of the best, {name}"] = best - float(mixed.objectives[-1])
    bare = SmoothedEntropy(alpha, _SLIGHT)
    row["lost by smoothing"] = bare(best_distribution(mdp, alpha)) - bare(smoothed)
    return row


def best_distribution(mdp: FiniteMDP, alpha: float) -> FloatArray:
    """That with the largest entropy of an order, nearly without smoothing."""
    objective = SmoothedShannon(_SLIGHT) if alpha == 1 else SmoothedEntropy(alpha, _SLIGHT)
    return largest_objective(mdp, objective, tolerance=_FINE)[0]


def cover_time(mdp: FiniteMDP, alpha: float) -> Row:
    """Draws from the best distribution of an order until every state was seen."""
    d = best_distribution(mdp, alpha)
    return {
        "expected draws": float(expected_cover_time(d / d.sum())),
        "rarest state": float(d.min()),
    }


def _honest_bound(alpha: float) -> Row:
    sigma = smoothing_for(alpha, _EPSILON, 16)
    return {
        "alpha": alpha,
        "sigma": sigma,
        "theorem": SmoothedEntropy(alpha, sigma).iterations(_EPSILON),
    }


def draw(bounds: list[Row], covers: list[Row]) -> str:
    """Iterations and cover times over alpha."""
    names = list(dict.fromkeys(row["process"] for row in bounds))
    colors = method_colors(names)
    with house_style():
        figure = Figure(figsize=(FULL, 3.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        for name in names:
            own = [row for row in bounds if row["process"] == name]
            alphas = [row["alpha"] for row in own]
            # Nothing needed at all would be at minus infinity.
            needed = [max(row["needed, exact"], 1) for row in own]
            left.plot(alphas, needed, "o-", color=colors[name], label=name)
            draws = {r["alpha"]: r["expected draws"] for r in covers if r["process"] == name}
            times = np.array(list(draws.values())) / next(iter(draws.values()))
            right.plot(list(draws), times, "o-", color=colors[name], label=name)
        left.plot(alphas, [row["theorem"] for row in own], "k--", label="the theorem's T")
        left.set(yscale="log", xlabel="α", ylabel="iterations until within ε")
        left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        right.set(xlabel="α", ylabel=f"expected draws, 1 = at α = {alphas[0]:g}")
        left.legend(fontsize=8)
        return as_svg(figure, "theory", "Iterations of MEPC, and cover times, over alpha")
