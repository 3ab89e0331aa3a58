"""MiniGrid's tasks, with observations that networks and distances can use."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rllib_rise.envs.figures import EPISODE_FIGURES
from rllib_rise.envs.maze import ExplorationStatistics
from rllib_rise.errors import ConfigError, MissingExtraError

# Kinds of objects, colours and states that MiniGrid has, and directions to look.
_KINDS, _COLORS, _STATES, _DIRECTIONS = 11, 6, 3, 4


class MiniGrid(gym.Wrapper):
    """A task of MiniGrid, the layout drawn anew for each episode: `rise/MiniGrid-v0`.

    Rewards, actions and the length of episodes are MiniGrid's: 1 - 0.9 (steps / limit) at the goal.
    The agent sees 7 x 7 cells before it. MiniGrid gives each cell as three numbers (kind, colour,
    state), of which the size means nothing; here each is one-hot, and so is the direction in which
    the agent looks: the distance of two observations grows with the number of cells that differ.

    At its end an episode tells whether a key was taken (`key_taken`) and a door was open
    (`door_opened`), where the task has such; visits are counted by the agent's position.

    Args:
        task: The middle of MiniGrid's id, `MiniGrid-<task>-v0`.
        render_mode: As MiniGrid's.

    Raises:
        MissingExtraError: If minigrid is not installed.
        ConfigError: If there is no such task.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, task: str = "DoorKey-8x8", render_mode: str | None = None) -> None:
        super().__init__(_make(task, render_mode))
        view = self.env.observation_space["image"].shape
        self._cells = view[0] * view[1]
        size = self._cells * (_KINDS + _COLORS + _STATES) + _DIRECTIONS
        self.observation_space = gym.spaces.Box(0, 1, (size,), np.float32)
        grid: Any = self.env.unwrapped
        self._visits = np.zeros((grid.height, grid.width), np.int64)
        self._steps = self._goals = 0
        self._first_goal: int | None = None
        self._doors: list[Any] = []
        self._keys = self._opened = self._taken = False

    def exploration_statistics(self) -> ExplorationStatistics:
        """A snapshot; all cells but the outer wall count as reachable in some layout."""
        reachable = np.zeros_like(self._visits, np.bool_)
        reachable[1:-1, 1:-1] = True
        return {
            "visit_counts": self._visits.copy(),
            "reachable": reachable,
            "goals_reached": self._goals,
            "first_goal_step": self._first_goal,
            "steps": self._steps,
        }

    def reset(self, **kwargs: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A new layout."""
        obs, info = self.env.reset(**kwargs)
        things = [thing for thing in self._grid.grid.grid if thing is not None]
        self._doors = [thing for thing in things if thing.type == "door"]
        self._keys = any(thing.type == "key" for thing in things)
        self._opened = self._taken = False
        return self._seen(obs), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """As MiniGrid's."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward = float(reward)
        self._steps += 1
        if reward > 0:
            self._goals += 1
            self._first_goal = self._first_goal or self._steps
        carried = self._grid.carrying
        self._taken = self._taken or (carried is not None and carried.type == "key")
        self._opened = self._opened or any(door.is_open for door in self._doors)
        if terminated or truncated:
            told = {"key_taken": float(self._taken)} if self._keys else {}
            told |= {"door_opened": float(self._opened)} if self._doors else {}
            info = {**info, EPISODE_FIGURES: told}
        return self._seen(obs), reward, terminated, truncated, info

    @property
    def _grid(self) -> Any:
        return self.env.unwrapped

    def _seen(self, obs: dict[str, Any]) -> NDArray[np.float32]:
        """Count the position; the observation as an agent gets it."""
        column, row = self._grid.agent_pos
        self._visits[row, column] += 1
        image = obs["image"].reshape(self._cells, 3)
        parts = []
        for place, choices in enumerate((_KINDS, _COLORS, _STATES)):
            parts.append(np.eye(choices, dtype=np.float32)[image[:, place]].ravel())
        parts.append(np.eye(_DIRECTIONS, dtype=np.float32)[obs["direction"]])
        return np.concatenate(parts)


def _make(task: str, render_mode: str | None) -> gym.Env:
    try:
        import minigrid  # noqa: F401 (registers its tasks)
    except ImportError as error:
        raise MissingExtraError(
            "rise/MiniGrid-v0 needs minigrid; in the repository: "
            "pip install -c constraints.txt -e '.[minigrid]'"
        ) from error
    env_id = f"MiniGrid-{task}-v0"
    if env_id not in gym.registry:
        known = sorted(
            name.removeprefix("MiniGrid-").removesuffix("-v0")
            for name in gym.registry
            if name.startswith("MiniGrid-") and name.endswith("-v0")
        )
        raise ConfigError(f"env.task={task!r} is no task of MiniGrid; there are {', '.join(known)}")
    return gym.make(env_id, render_mode=render_mode, disable_env_checker=True)
