"""What keeps Q-learning from replay from following the bonus? Writes results/replayed_novelty/.

Q-learning on 10 x 10 mazes, with the settings of configs/dqn_maze.yaml, in a loop of its own that
changes one thing at a time:

- the value function: a table, which cannot confuse cells, or DQN's network over coordinates;
- the bonus: none, RISE's as it is, brought to mean 0 and deviation 1 (`standardize`), the same with
  a buffer of a tenth, or with its running maximum subtracted, so that nothing tried looks better
  than what was not.

Reported is the share of reachable cells visited within 20,000 steps, on mazes that no setting was
chosen on.

How to run (twenty minutes on one core; resumes where it stopped):

    python benchmarks/replayed_novelty.py
"""

from __future__ import annotations

import csv
import itertools
import re
from collections import deque
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rllib_rise.bonuses import RISE, Transitions, parse_settings
from rllib_rise.bonuses.moments import RunningMoments, standardized
from rllib_rise.envs import Maze
from rllib_rise.experiments.statistics import bootstrap_interval, interquartile_mean

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "replayed_novelty" / "results.csv"
PAGE = ROOT / "docs" / "algorithms.md"
COLUMNS = ("layout", "values", "bonus", "maze_seed", "coverage")
_MARKERS = re.compile(r"(<!-- replayed novelty: [^\n]* -->\n).*?(<!-- end -->)", re.DOTALL)

LAYOUTS = ("perfect", "loops")
VALUES = ("table", "network")
BONUSES = ("none", "raw", "standardised", "small buffer", "below maximum")
# Beyond those that settings were tried on.
MAZES = range(100, 105)
STEPS, ENVS, EPISODE, BATCH, BEGIN = 20_000, 4, 100, 64, 1000
GAMMA, LAMBDA_0, KAPPA, K, ALPHA = 0.97, 0.1, 1e-4, 3, 0.1
CAPACITY, SMALL_CAPACITY, TARGET_EVERY = 20_000, 2_000, 50


class Table:
    """Q by a table: every cell has values of its own."""

    def __init__(self, obs: torch.Tensor) -> None:
        self.q = torch.zeros(len(obs), 4)

    def values(self) -> torch.Tensor:
        """Of all cells and actions."""
        return self.q

    def learn(self, cells: torch.Tensor, actions: torch.Tensor, targets: torch.Tensor) -> None:
        """One step towards the targets."""
        errors = targets - self.q[cells, actions]
        self.q.index_put_((cells, actions), 0.1 * errors, accumulate=True)


class Network:
    """Q by DQN's network over coordinates: what it learns of a cell it believes of its like."""

    def __init__(self, obs: torch.Tensor) -> None:
        self.obs = obs
        self.net = nn.Sequential(
            nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4)
        )
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    @torch.no_grad()
    def values(self) -> torch.Tensor:
        """Of all cells and actions."""
        return self.net(self.obs)

    def learn(self, cells: torch.Tensor, actions: torch.Tensor, targets: torch.Tensor) -> None:
        """One step towards the targets."""
        chosen = self.net(self.obs[cells])[torch.arange(len(cells)), actions]
        loss = nn.functional.huber_loss(chosen, targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Novelty:
    """The bonus of a replayed batch."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rise = RISE(parse_settings(RISE, {"k": K, "alpha": ALPHA}), (2,))
        self.moments, self.largest = RunningMoments(), 0.0

    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        """One value per observation."""
        if self.kind == "none":
            return torch.zeros(len(obs))
        r_hat = self.rise.reward(Transitions(obs=obs))
        if self.kind == "raw":
            return r_hat
        if self.kind == "below maximum":
            self.largest = max(self.largest, float(r_hat.max()))
            return r_hat - self.largest
        given = standardized(r_hat, self.moments)
        self.moments.update(r_hat)
        return given


def cover(layout: str, values: str, bonus: str, maze_seed: int) -> float:
    """The share of the reachable cells that a run has visited."""
    torch.manual_seed(maze_seed)
    rng = np.random.default_rng(maze_seed)
    maze = Maze(size=10, layout=layout, maze_seed=maze_seed)  # type: ignore[arg-type]
    rows, columns = np.divmod(np.arange(maze.size**2), maze.size)
    coordinates = np.stack([rows, columns], axis=1) / (maze.size - 1) * 2 - 1
    obs = torch.tensor(coordinates, dtype=torch.float32)
    q = Table(obs) if values == "table" else Network(obs)
    target, novelty = q.values().clone(), Novelty(bonus)
    capacity = SMALL_CAPACITY if bonus == "small buffer" else CAPACITY
    buffer: deque[NDArray[np.int64]] = deque(maxlen=capacity // ENVS)
    cells, ages = np.full(ENVS, maze.start), np.zeros(ENVS, int)
    visited = np.zeros(maze.size**2, bool)
    visited[maze.start] = True
    for step in range(0, STEPS, ENVS):
        epsilon = max(0.05, 1 - 0.95 * step / 5000)
        # Equal values, as a table has at first, are no preference.
        greedy = (q.values().numpy()[cells] + 1e-6 * rng.random((ENVS, 4))).argmax(1)
        actions = np.where(rng.random(ENVS) < epsilon, rng.integers(0, 4, ENVS), greedy)
        following = maze.transitions[cells, actions]
        ages += 1
        at_goal = following == maze.goal
        buffer.append(np.stack([cells, actions, following, at_goal], axis=1))
        visited[following] = True
        over = at_goal | (ages >= EPISODE)
        cells, ages = np.where(over, maze.start, following), np.where(over, 0, ages)
        if step < BEGIN:
            continue
        places = rng.integers(0, len(buffer), BATCH), rng.integers(0, ENVS, BATCH)
        rows_drawn = [buffer[i][j] for i, j in zip(*places, strict=True)]
        s, a, s_next, done = torch.from_numpy(np.stack(rows_drawn)).T
        reward = done + LAMBDA_0 * (1 - KAPPA) ** step * novelty(obs[s])
        best = q.values()[s_next].argmax(1)  # double Q-learning, as DQN's default
        q.learn(s, a, (reward + GAMMA * (1 - done) * target[s_next, best]).float())
        if step // ENVS % TARGET_EVERY == 0:
            target = q.values().clone()
    return float(visited[maze.reachable.ravel()].mean())


def read() -> list[dict[str, str]]:
    """The cases that have been run."""
    if not RESULTS.exists():
        return []
    with RESULTS.open() as stream:
        return list(csv.DictReader(stream))


def measure() -> None:
    """Run the cases that have not been."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    known = {tuple(row[name] for name in COLUMNS[:-1]) for row in read()}
    with RESULTS.open("a", newline="") as stream:
        writer = csv.writer(stream)
        if not known:
            writer.writerow(COLUMNS)
        for maze_seed, *case in itertools.product(MAZES, LAYOUTS, VALUES, BONUSES):
            layout, values, bonus = map(str, case)
            if (layout, values, bonus, str(maze_seed)) in known:
                continue
            coverage = cover(layout, values, bonus, maze_seed)
            writer.writerow([layout, values, bonus, maze_seed, round(coverage, 4)])
            stream.flush()
            print(layout, values, bonus, maze_seed, round(coverage, 3), flush=True)


def table() -> str:
    """Coverage of every case, and on how many mazes it is above that without a bonus."""
    found = {tuple(row[n] for n in COLUMNS[:-1]): float(row["coverage"]) for row in read()}
    lines = ["| maze | values | bonus | coverage | more, as much, less than none |"]
    lines.append("|---|---|---|---|---|")
    for case in itertools.product(LAYOUTS, VALUES, BONUSES):
        scores = np.array([found[(*case, str(seed))] for seed in MAZES])
        plain = np.array([found[(*case[:2], "none", str(seed))] for seed in MAZES])
        interval = bootstrap_interval([scores], interquartile_mean)
        cells = [*case, f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"]
        signs = [(scores > plain).sum(), (scores == plain).sum(), (scores < plain).sum()]
        cells.append("" if case[2] == "none" else ", ".join(map(str, signs)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure()
    PAGE.write_text(_MARKERS.sub(lambda m: m[1] + table() + m[2], PAGE.read_text()))
    print(table())
