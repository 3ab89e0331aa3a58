"""Where the agent has been, summed over all environments of a run.

Any environment takes part that has a method `exploration_statistics()` returning `visit_counts`,
`reachable`, `goals_reached`, `first_goal_step` and `steps`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_METHOD = "exploration_statistics"


class ExplorationTracker:
    """Polls the env runners of an algorithm after every iteration."""

    def __init__(self) -> None:
        self.visit_counts: np.ndarray | None = None
        self.reachable: np.ndarray | None = None
        self.goals_reached = 0
        self.first_goal_steps: int | None = None
        self._supported = True
        self._before: tuple[np.ndarray, int] | None = None
        self._last: dict[tuple[int, int], dict[str, Any]] = {}
        self._env_steps = self._started_at = 0

    def poll(self, algorithm: Any, env_steps: int) -> dict[str, float]:
        """Update from the environments; the figures for this iteration's row."""
        if not self._supported:
            return {}
        # With a limit: an env runner may hang, and the run goes on with the others.
        found = algorithm.env_runner_group.foreach_env_runner(
            _collect,
            local_env_runner=not algorithm.config.num_env_runners,
            timeout_seconds=algorithm.config.sample_timeout_s,
        )
        reports = {key: report for part in found if part for key, report in part.items()}
        if not reports:
            self._supported = bool(self._last) or not found
            return {}
        for key, report in reports.items():
            last = self._last.get(key)
            if last is not None and report["steps"] < last["steps"]:
                self._retire(last)  # the environment was made anew: keep what its forerunner saw
            self._last[key] = report
        self._sum()
        if self.first_goal_steps is None and self.goals_reached > 0:
            self.first_goal_steps = self._first_goal(list(reports.values()), env_steps)
        self._env_steps = env_steps
        return self.figures()

    def _first_goal(self, reports: list[dict[str, Any]], env_steps: int) -> int:
        """The run's steps at the first goal: environments step together, one after the other.

        Never outside this iteration, whatever happened to single environments.
        """
        own = [r["first_goal_step"] for r in reports if r["first_goal_step"] is not None]
        estimate = self._started_at + min(own, default=0) * len(reports)
        return max(self._env_steps + 1, min(estimate, env_steps))

    def figures(self) -> dict[str, float]:
        """Coverage (share of the reachable cells that were visited) and goals."""
        if self.visit_counts is None or self.reachable is None:
            return {}
        visited = (self.visit_counts > 0) & self.reachable
        return {
            "coverage": float(visited.sum() / self.reachable.sum()),
            "goals_reached": float(self.goals_reached),
        }

    def save(self, path: Path) -> None:
        """Write what was seen so far."""
        if self.visit_counts is None or self.reachable is None:
            return
        np.savez_compressed(
            path,
            visit_counts=self.visit_counts,
            reachable=self.reachable,
            goals_reached=self.goals_reached,
            first_goal_steps=-1 if self.first_goal_steps is None else self.first_goal_steps,
        )

    def begin(self, env_steps: int) -> None:
        """Count from `env_steps` on, which were taken before the environments were made."""
        self._env_steps = self._started_at = env_steps

    def load(self, path: Path, env_steps: int) -> None:
        """Go on from a file that `save` wrote after `env_steps`."""
        self.begin(env_steps)
        if not path.exists():
            return
        with np.load(path) as data:
            self.visit_counts = data["visit_counts"]
            self.reachable = data["reachable"]
            self.goals_reached = int(data["goals_reached"])
            first = int(data["first_goal_steps"])
        self.first_goal_steps = None if first < 0 else first
        self._before = (self.visit_counts, self.goals_reached)

    def _retire(self, report: dict[str, Any]) -> None:
        counts, goals = self._before or (np.zeros_like(report["visit_counts"]), 0)
        self._before = (counts + report["visit_counts"], goals + report["goals_reached"])

    def _sum(self) -> None:
        reports = list(self._last.values())
        counts = sum(report["visit_counts"] for report in reports)
        goals = sum(report["goals_reached"] for report in reports)
        if self._before is not None:
            counts, goals = counts + self._before[0], goals + self._before[1]
        self.visit_counts, self.goals_reached = np.asarray(counts), int(goals)
        self.reachable = reports[0]["reachable"]


def _collect(env_runner: Any) -> dict[tuple[int, int], dict[str, Any]]:
    # Runs on the env runner. RLlib kills a runner whose function raises, so nothing may.
    try:
        reports = env_runner.env.unwrapped.call(_METHOD)
        return {(env_runner.worker_index, i): report for i, report in enumerate(reports)}
    except Exception:
        return {}
