"""Gymnasium's two mountain cars, with a count of the states that were visited."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rllib_rise.envs.maze import ExplorationStatistics
from rllib_rise.envs.maze_structure import check_integer

AXES = ("position", "velocity")


class MountainCar(gym.Wrapper):
    """`MountainCar-v0` with exploration statistics: `rise/MountainCar-v0`.

    Dynamics, rewards and the length of episodes are Gymnasium's. Observations are scaled from their
    bounds to [-1, 1]: as Gymnasium has them, a whole range of velocities is as far as a thirteenth
    of the valley, so neither a network nor a distance would notice them.

    The plane of positions and velocities is cut into `bins` x `bins` cells, whose visits are
    counted. Some cells no car can reach (high up and fast downhill, say): coverage is a share of
    all of them, and never gets to 1.

    Args:
        bins: Cells per side, at least 2.
        render_mode: As Gymnasium's.
    """

    # Of the class: Gymnasium looks before it makes one, and a wrapper's own would be a property.
    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 30}  # noqa: RUF012
    _id = "MountainCar-v0"

    def __init__(self, bins: int = 40, render_mode: str | None = None) -> None:
        super().__init__(gym.make(self._id, render_mode=render_mode, disable_env_checker=True))
        self._bins = check_integer("bins", bins, minimum=2)
        space = self.env.observation_space
        assert isinstance(space, gym.spaces.Box)
        self._low, self._range = space.low, space.high - space.low
        self.observation_space = gym.spaces.Box(-1, 1, space.shape, np.float32)
        self._visits = np.zeros((self._bins, self._bins), np.int64)
        self._steps = self._goals = 0
        self._first_goal: int | None = None

    def exploration_statistics(self) -> ExplorationStatistics:
        """A snapshot: rows are velocities, the highest first, columns positions."""
        return {
            "visit_counts": self._visits.copy(),
            "reachable": np.ones_like(self._visits, np.bool_),
            "goals_reached": self._goals,
            "first_goal_step": self._first_goal,
            "steps": self._steps,
        }

    def reset(self, **kwargs: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """As Gymnasium's."""
        obs, info = self.env.reset(**kwargs)
        return self._seen(obs), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """As Gymnasium's."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if terminated:
            self._goals += 1
            self._first_goal = self._first_goal or self._steps
        return self._seen(obs), float(reward), terminated, truncated, info

    def _seen(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Count the state; the observation as an agent gets it."""
        share = (obs - self._low) / self._range
        column, row = np.minimum(share * self._bins, self._bins - 1).astype(int)
        self._visits[self._bins - 1 - row, column] += 1
        return np.clip(2 * share - 1, -1, 1, dtype=np.float32)


class MountainCarContinuous(MountainCar):
    """`MountainCarContinuous-v0` likewise: `rise/MountainCarContinuous-v0`."""

    _id = "MountainCarContinuous-v0"
