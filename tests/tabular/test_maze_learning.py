"""The maze study's runs against a plain loop over one run, and their independence."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rllib_rise.tabular.maze_learning import (
    DISCOUNT,
    EXPLORATION,
    LEARNING_RATE,
    NEIGHBOR,
    Arm,
    Mazes,
    make_mazes,
    steps_to_cover,
)

ARMS = (
    Arm("Q-learning"),
    Arm("no goal", goal_reward=0.0),
    Arm("Shannon", "counts"),
    Arm("counts .1", "counts", 0.1),
    Arm("counts .5, paper's coefficient", "counts", 0.5, coefficient=0.5),
    Arm("counts .5, normalised", "counts", 0.5, normalize=True),
    Arm("RISE .1", "knn", 0.1),
    Arm("RE3", "knn"),
)
CAP = 4000


def plain_run(mazes: Mazes, number: int, arm: Arm, cap: int) -> float:
    """One run, as the module's docstring says, with sums over all cells and no shortcuts."""
    cells = mazes.size**2
    rng = np.random.default_rng((0, mazes.size, mazes.seeds[number]))
    numbers = np.concatenate([rng.random((2, 512)) for _ in range(-(-cap // 512))], axis=1)
    q, counts = np.zeros((cells, 4)), np.zeros(cells)
    counts[0] = 1
    history, cell, age, largest, rewards = [0], 0, 0, -math.inf, []
    for step in range(cap):
        best = np.flatnonzero(q[cell] == q[cell].max())
        if numbers[0, step] < EXPLORATION:
            best = np.arange(4)
        action = best[int(numbers[1, step] * len(best))]
        reached = int(mazes.successors[number, cell, action])
        counts[reached] += 1
        d = counts / counts.sum()
        x = 0.0
        if arm.bonus == "counts" and arm.alpha < 1:
            x = d[reached] ** (arm.alpha - 1) / (d[d > 0] ** arm.alpha).sum()
        elif arm.bonus == "counts":
            x = -math.log(d[reached]) + (d[d > 0] * np.log(d[d > 0])).sum()
        elif arm.bonus == "knn":
            places = np.array([divmod(c, mazes.size) for c in history])
            gaps = np.sort(np.linalg.norm(places - np.array(divmod(reached, mazes.size)), axis=1))
            rho = gaps[min(NEIGHBOR, len(gaps)) - 1]
            x = rho ** (1 - arm.alpha) if arm.alpha < 1 else math.log(1 + rho)
        history.append(reached)
        x = round(x, 10)
        largest = max(largest, x)
        factor = arm.coefficient
        if arm.bonus == "counts" and arm.alpha < 1:
            factor /= 1 - arm.alpha
        bonus = factor * (x - largest)
        rewards.append(bonus)
        if arm.normalize:
            bonus /= max(float(np.std(rewards)), 1e-8)
        at_goal = reached == cells - 1
        reward = (arm.goal_reward if at_goal else -0.1 / cells) + bonus
        target = reward + (0 if at_goal else DISCOUNT * q[reached].max())
        q[cell, action] += LEARNING_RATE * (target - q[cell, action])
        age += 1
        if (counts[mazes.reachable[number]] > 0).all():
            return step + 1
        over = at_goal or age >= 10 * cells
        cell, age = (0, 0) if over else (reached, age)
    return math.nan


@pytest.mark.parametrize("layout", ["perfect", "portals"])
def test_runs_are_those_of_a_plain_loop(layout):
    mazes = make_mazes(5, layout, range(4))
    found = steps_to_cover(mazes, ARMS, cap=CAP)
    expected = [[plain_run(mazes, number, arm, CAP) for number in range(4)] for arm in ARMS]
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(found).mean() > 0.8


def test_a_run_does_not_depend_on_the_others():
    together = steps_to_cover(make_mazes(6, "portals", range(5)), ARMS, cap=CAP)
    alone = steps_to_cover(make_mazes(6, "portals", [3]), ARMS[3:4], cap=CAP)
    assert alone[0, 0] == together[3, 3]


def test_the_seed_decides():
    mazes = make_mazes(6, "perfect", range(6))
    first, again, other = (steps_to_cover(mazes, ARMS, cap=CAP, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_who_does_not_get_through_is_told():
    mazes = make_mazes(6, "perfect", range(3))
    assert np.isnan(steps_to_cover(mazes, ARMS[:1], cap=10)).all()


def test_the_settings_are_the_papers():
    """And what it does not print, as the page about it says."""
    assert (LEARNING_RATE, EXPLORATION) == (0.2, 0.001)
    assert (DISCOUNT, NEIGHBOR) == (0.99, 3)
    mazes = make_mazes(10, "portals", range(20))
    passages = (mazes.successors != np.arange(100)[None, :, None]).sum(axis=(1, 2)) / 2
    assert passages.min() >= 99 + 15  # a tree of 100 cells has 99; about 20 cells lost a wall
