"""Q-learning on mazes with and without a bonus: how many steps until every cell was seen.

Runs are independent of each other and are advanced together, a step of all of them at a time. Each
draws from a generator of its own, so that a run does not depend on which others there are.

The paper does not print how its reward is computed online. Rewards are those of the cell that a
step ends in; n is the number of visits to it, this one included, t the number of all visits, and
d_j = n_j / t over the cells seen so far:

    counts    x = d^(alpha-1) / sum_j d_j^alpha, whose part 1 / (1-alpha) is the gradient of the
              entropy of order alpha; at alpha = 1 its limit, x = -log d - H(d).
    knn       x = rho^(1-alpha), rho the distance to the k-th nearest of all earlier visits (of
              cells, with a side of 1); at alpha = 1 RE3's log(1 + rho).

A table of zeros prefers actions that have been tried and rewarded, so that a positive bonus makes
it stay. The reward is therefore x minus the largest x of the run so far, and not above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rllib_rise.envs.maze_structure import Layout, generate_maze
from rllib_rise.tabular.entropies import FloatArray

LEARNING_RATE = 0.2
EXPLORATION = 0.001
DISCOUNT = 0.99
NEIGHBOR = 3
_BLOCK = 512
_NEAR = 16
_DIGITS = 10
_LEAST_DEVIATION = 1e-8


@dataclass(frozen=True)
class Arm:
    """What a run is rewarded with.

    Attributes:
        name: In tables.
        bonus: `counts`, `knn`, or None.
        alpha: The order.
        coefficient: A factor; that of the gradient is 1 / (1 - alpha).
        normalize: Divide by the deviation of the rewards so far.
        goal_reward: What the goal gives.
    """

    name: str
    bonus: Literal["counts", "knn"] | None = None
    alpha: float = 1.0
    coefficient: float = 1.0
    normalize: bool = False
    goal_reward: float = 1.0


@dataclass(frozen=True, eq=False)
class Mazes:
    """Mazes of one kind.

    Attributes:
        size: Cells per side.
        layout: As in `generate_maze`.
        seeds: Of each.
        successors: Where actions lead [mazes, cells, 4].
        reachable: Cells that can be seen before the goal ends an episode [mazes, cells].
    """

    size: int
    layout: Layout
    seeds: tuple[int, ...]
    successors: NDArray[np.int64]
    reachable: NDArray[np.bool_]


def make_mazes(size: int, layout: Layout, seeds: Sequence[int]) -> Mazes:
    """One maze per seed."""
    found = [generate_maze(size, layout, loop_fraction=0.2, seed=seed) for seed in seeds]
    return Mazes(
        size,
        layout,
        tuple(seeds),
        np.stack([maze.transitions() for maze in found]),
        np.stack([maze.reachable(through_goal=False).ravel() for maze in found]),
    )


def steps_to_cover(
    mazes: Mazes,
    arms: Sequence[Arm],
    *,
    cap: int,
    seed: int = 0,
) -> FloatArray:
    """Steps until every reachable cell was seen, for every arm in every maze.

    Args:
        mazes: Where to run.
        arms: What to run.
        cap: Steps after which a run is given up.
        seed: Of the actions: run (arm, maze) draws from the generator (seed, size, maze's seed),
            the same for all arms.

    Returns:
        [arms, mazes]; NaN where the cap was reached.
    """
    runs = _Runs(mazes, arms, seed)
    covered = np.full((len(arms), len(mazes.seeds)), np.nan)
    done = 0
    while done < cap and len(runs):
        runs.draw(_BLOCK)
        for column in range(min(_BLOCK, cap - done)):
            runs.step(column)
            done += 1
            finished = np.flatnonzero(runs.unseen == 0)
            if len(finished):
                covered[runs.arm[finished], runs.maze[finished]] = done
                runs.drop(finished)
                if not len(runs):
                    break
    return covered


class _Runs:
    """The state of all runs that are not finished; axis 0 is the run."""

    def __init__(self, mazes: Mazes, arms: Sequence[Arm], seed: int) -> None:
        arm, maze = np.meshgrid(np.arange(len(arms)), np.arange(len(mazes.seeds)), indexing="ij")
        self.arm, self.maze = arm.ravel(), maze.ravel()
        own = [arms[int(a)] for a in self.arm]
        cells = mazes.size**2
        self._goal, self._limit = cells - 1, 10 * cells
        self._step_reward = -0.1 / cells  # as in gym-maze, where the paper's mazes are from
        self._successors, self._reachable = mazes.successors, mazes.reachable
        self._bonus = _Bonus(own, mazes.size)
        self._goal_reward = np.array([one.goal_reward for one in own])
        self._generators = [
            np.random.default_rng((seed, mazes.size, mazes.seeds[m])) for m in self.maze
        ]
        self._q = np.zeros((len(self.arm), cells, 4))
        self._cell = np.zeros(len(self.arm), dtype=np.int64)
        self._age = np.zeros(len(self.arm), dtype=np.int64)
        self._seen = np.zeros((len(self.arm), cells), dtype=bool)
        self._seen[:, 0] = True
        self.unseen = self._reachable[self.maze].sum(axis=1) - 1

    def __len__(self) -> int:
        return len(self.arm)

    def draw(self, steps: int) -> None:
        """Random numbers for as many steps."""
        self._random = np.stack([one.random((2, steps)) for one in self._generators])
        self._rows = np.arange(len(self))

    def step(self, column: int) -> None:
        """One step of every run: act, be rewarded, learn."""
        rows, cell = self._rows, self._cell
        whether, which = self._random[:, 0, column], self._random[:, 1, column]
        values = self._q[rows, cell]
        # Among equal values each is as likely as the other; the exploring run has four equal ones.
        best = (values == values.max(axis=1, keepdims=True)) | (whether < EXPLORATION)[:, None]
        rank = best.cumsum(axis=1)
        action = (rank > (which * rank[:, -1]).astype(np.int64)[:, None]).argmax(axis=1)
        reached = self._successors[self.maze, cell, action]
        at_goal = reached == self._goal
        reward = np.where(at_goal, self._goal_reward, self._step_reward)
        reward += self._bonus(rows, reached)
        ahead = np.where(at_goal, 0.0, self._q[rows, reached].max(axis=1))
        target = reward + DISCOUNT * ahead
        self._q[rows, cell, action] += LEARNING_RATE * (target - values[rows, action])
        fresh = ~self._seen[rows, reached]
        self._seen[rows, reached] = True
        self.unseen -= fresh & self._reachable[self.maze, reached]
        self._age += 1
        over = at_goal | (self._age >= self._limit)
        self._cell = np.where(over, 0, reached)
        self._age[over] = 0

    def drop(self, finished: NDArray[np.int64]) -> None:
        """Leave runs out from here on."""
        kept = np.delete(np.arange(len(self)), finished)
        for name in ("arm", "maze", "unseen", "_goal_reward", "_q", "_cell", "_age", "_seen"):
            setattr(self, name, getattr(self, name)[kept])
        self._random = self._random[kept]
        self._generators = [self._generators[run] for run in kept]
        self._rows = np.arange(len(kept))
        self._bonus.keep(kept)


class _Bonus:
    """The intrinsic rewards of all runs."""

    def __init__(self, arms: Sequence[Arm], size: int) -> None:
        cells = size**2
        self._counts = np.zeros((len(arms), cells))
        self._counts[:, 0] = 1
        self._time = 1.0
        self._alpha = np.array([arm.alpha for arm in arms])
        # What x is multiplied with: the form at alpha = 1 has its factor in it.
        by_counts = np.array([arm.bonus == "counts" for arm in arms])
        rest = np.where(by_counts & (self._alpha < 1), 1 - self._alpha, 1.0)
        self._factor = np.array([arm.coefficient for arm in arms]) / rest
        self._by_counts, self._by_knn = by_counts, np.array([arm.bonus == "knn" for arm in arms])
        self._normalize = np.array([arm.normalize for arm in arms])
        self._powers = np.ones(len(arms))  # sum_j n_j^alpha
        self._logs = np.zeros(len(arms))  # sum_j n_j log n_j
        self._largest = np.full(len(arms), -np.inf)
        self._mean, self._squares = np.zeros(len(arms)), np.zeros(len(arms))
        self._order, self._distance = _sorted_cells(size)
        self._split()

    def __call__(self, rows: NDArray[np.int64], cell: NDArray[np.int64]) -> FloatArray:
        """Rewards [runs] of the cells that have just been entered."""
        x = np.zeros(len(cell))
        if len(self._knn_rows):
            x[self._knn_rows] = self._neighbors(self._knn_rows, cell[self._knn_rows])
        self._time += 1
        self._counts[rows, cell] += 1
        if len(self._count_rows):
            x[self._count_rows] = self._gradient(self._count_rows, cell[self._count_rows])
        # Values that differ by rounding alone must not decide between actions.
        x = x.round(_DIGITS)
        self._largest = np.maximum(self._largest, x)
        reward = self._factor * (x - self._largest)
        if self._any_normalized:
            step = self._time - 1
            change = reward - self._mean
            self._mean += change / step
            self._squares += change * (reward - self._mean)
            deviation = np.sqrt(self._squares / step).clip(min=_LEAST_DEVIATION)
            reward = np.where(self._normalize, reward / deviation, reward)
        return reward

    def keep(self, kept: NDArray[np.int64]) -> None:
        """Leave all others out."""
        for name in (
            *("_counts", "_alpha", "_factor", "_by_counts", "_by_knn", "_normalize"),
            *("_powers", "_logs", "_largest", "_mean", "_squares"),
        ):
            setattr(self, name, getattr(self, name)[kept])
        self._split()

    def _split(self) -> None:
        self._count_rows = np.flatnonzero(self._by_counts)
        self._knn_rows = np.flatnonzero(self._by_knn)
        self._any_normalized = bool(self._normalize.any())

    def _gradient(self, rows: NDArray[np.int64], cell: NDArray[np.int64]) -> FloatArray:
        """x by counts, which hold the present visit already."""
        n, alpha = self._counts[rows, cell], self._alpha[rows]
        before = np.maximum(n - 1, 1)
        self._powers[rows] += n**alpha - np.where(n > 1, before**alpha, 0)
        self._logs[rows] += n * np.log(n) - (n - 1) * np.log(before)
        # With d = n / t: d^(alpha-1) / sum d^alpha = n^(alpha-1) t / sum n^alpha,
        # and -log d - H(d) = -log n + sum n log n / t.
        shannon = self._logs[rows] / self._time - np.log(n)
        return np.where(alpha < 1, n ** (alpha - 1) * self._time / self._powers[rows], shannon)

    def _neighbors(self, rows: NDArray[np.int64], cell: NDArray[np.int64]) -> FloatArray:
        """x by the distance to the k-th nearest of the visits before this one."""
        order = self._order[cell]
        met = self._counts[rows[:, None], order[:, :_NEAR]].cumsum(axis=1)
        place = (met >= NEIGHBOR).argmax(axis=1)
        far = met[:, -1] < NEIGHBOR
        if far.any():
            met = self._counts[rows[far][:, None], order[far]].cumsum(axis=1)
            place[far] = (met >= np.minimum(NEIGHBOR, met[:, -1:])).argmax(axis=1)
        rho, alpha = self._distance[cell, place], self._alpha[rows]
        return np.where(alpha < 1, rho ** (1 - alpha), np.log1p(rho))


def _sorted_cells(size: int) -> tuple[NDArray[np.int64], FloatArray]:
    """All cells by their distance from each, and these distances; both [cells, cells]."""
    places = np.stack(np.divmod(np.arange(size**2), size), axis=1)
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    order = distances.argsort(axis=1, kind="stable")
    return order, np.take_along_axis(distances, order, axis=1)
