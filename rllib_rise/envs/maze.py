"""A seeded grid maze whose exploration can be measured exactly.

The maze is a square grid with the start at the top left and the goal at the bottom right. The
dynamics are deterministic and given by one table, so that tabular algorithms, coverage statistics
and the environment itself cannot disagree.
"""

import math
import operator
from typing import Any, Literal, TypedDict

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rllib_rise.envs.maze_picture import MazePicture, large_picture, observation_picture
from rllib_rise.envs.maze_structure import (
    Layout,
    check_choice,
    check_integer,
    generate_maze,
)
from rllib_rise.errors import ConfigError, RiseError

ObservationKind = Literal["coordinates", "image"]


class ExplorationStatistics(TypedDict):
    """What one environment instance has seen so far, and what it could see."""

    visit_counts: NDArray[np.int64]
    reachable: NDArray[np.bool_]
    goals_reached: int
    first_goal_step: int | None
    steps: int


class Maze(gym.Env):
    """Find the far corner of a maze: `rise/Maze-v0`.

    The agent starts in the top left cell and looks for the goal in the bottom right one. Actions
    are 0 up, 1 down, 2 left, 3 right; walking into a wall leaves the agent in place. A step into a
    portal ends at the portal's twin, and standing there does not teleport again. `info["cell"]` is
    `row * size + column`.

    The maze is fixed by `maze_seed` and not by `reset(seed=...)`, so all workers explore the same
    one. Returned observations belong to the caller: no later step writes to them.

    Observations:
        coordinates: float32 `[2]`, (row, column), each scaled from 0..size-1 to [-1, 1].
        image: uint8 `[image_size, image_size, 3]`, the whole maze from above with walls, portals
            (one colour per pair), start, goal and agent.

    Args:
        size: Cells per side, at least 2.
        layout: `perfect` (no loops), `loops`, or `portals` (both), see `generate_maze`.
        loop_fraction: Share of the cells that lose an extra wall in the latter two.
        maze_seed: Seed of the maze.
        observation: `coordinates` or `image`.
        image_size: Side of the image observation in pixels, at least `2 * size + 1`.
        max_steps: Length at which an episode is truncated. `None`: `10 * size**2`, as in the paper.
        goal_reward: Reward of a step that enters the goal.
        step_reward: Reward of every other step. The known gym-maze uses `-0.1 / size**2`; the paper
            does not print it. The default 0 leaves the goal as the only signal.
        terminate_at_goal: Whether entering the goal ends the episode. If not, the agent walks on,
            and is rewarded for each entry but not for staying (bumping into a wall) in the goal.
        render_mode: `rgb_array` or `None`.

    Attributes:
        structure: Walls and portals.
        transitions: `[size**2, 4]`, the cell where each action ends, teleports included. The goal's
            row is that of an ordinary cell: treat it as terminal if `terminate_at_goal`.
        start: Cell number of the start.
        goal: Cell number of the goal.
        reachable: `[size, size]`, the start and the cells in which a step can end. With
            `terminate_at_goal`, cells that lie behind the goal are not among them.
        steps: Steps taken by this instance, over all episodes.
        goals_reached: How often the agent entered the goal, over all episodes.
        first_goal_step: `steps` when the goal was first entered, `None` before.

    Raises:
        ConfigError: If an argument is out of its range.
    """

    # A plain class attribute without ClassVar, because Gymnasium's base declares it so.
    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        *,
        size: int = 20,
        layout: Layout = "perfect",
        loop_fraction: float = 0.2,
        maze_seed: int = 0,
        observation: ObservationKind = "coordinates",
        image_size: int = 84,
        max_steps: int | None = None,
        goal_reward: float = 1.0,
        step_reward: float = 0.0,
        terminate_at_goal: bool = True,
        render_mode: str | None = None,
    ) -> None:
        size = check_integer("size", size, minimum=2)
        maze_seed = check_integer("maze_seed", maze_seed, minimum=0)
        check_choice("observation", observation, ObservationKind)
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"render_mode={render_mode!r} is unknown: use 'rgb_array' or None.")
        for name, value in (("goal_reward", goal_reward), ("step_reward", step_reward)):
            if not math.isfinite(value):
                raise ConfigError(f"{name}={value!r} is not finite: use an ordinary number.")
        if max_steps is None:
            max_steps = 10 * size**2

        self.structure = generate_maze(size, layout, loop_fraction=loop_fraction, seed=maze_seed)
        self.size = size
        self.start = self.structure.start
        self.goal = self.structure.goal
        self.max_steps = check_integer("max_steps", max_steps, minimum=1)
        self.goal_reward = float(goal_reward)
        self.step_reward = float(step_reward)
        self.terminate_at_goal = bool(terminate_at_goal)
        self.render_mode = render_mode
        self.transitions = self.structure.transitions()
        self.reachable = self.structure.reachable(through_goal=not self.terminate_at_goal)
        self.transitions.flags.writeable = False
        self.reachable.flags.writeable = False

        self.action_space = gym.spaces.Discrete(4)
        self._image: MazePicture | None = None
        self._render_picture: MazePicture | None = None
        if observation == "image":
            self._image = observation_picture(self.structure, image_size)
            self.observation_space = gym.spaces.Box(
                0, 255, shape=(image_size, image_size, 3), dtype=np.uint8
            )
        else:
            self.observation_space = gym.spaces.Box(-1.0, 1.0, shape=(2,), dtype=np.float32)

        # Reading and counting single elements is several times faster in lists than in arrays.
        self._successors: list[list[int]] = self.transitions.tolist()
        self._coordinates = list(_scaled_coordinates(size))
        self._visits = [0] * size**2

        self._cell = self.start
        self._episode_steps = 0
        self._episode_over = True
        self.steps = 0
        self.goals_reached = 0
        self.first_goal_step: int | None = None

    @property
    def visit_counts(self) -> NDArray[np.int64]:
        """How often each cell was the agent's place after a reset or a step, `[size, size]`.

        Counts accumulate over the life of the instance. A step into a wall counts the cell again; a
        step into a portal counts the twin, where it ends, and not the portal that was entered. The
        sum is therefore the number of steps plus the number of resets.
        """
        return np.array(self._visits, dtype=np.int64).reshape(self.size, self.size)

    def exploration_statistics(self) -> ExplorationStatistics:
        """A snapshot for a training loop, e.g. by `VectorEnv.call("exploration_statistics")`."""
        return {
            "visit_counts": self.visit_counts,
            "reachable": self.reachable.copy(),
            "goals_reached": self.goals_reached,
            "first_goal_step": self.first_goal_step,
            "steps": self.steps,
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Puts the agent back to the start. Neither argument changes the maze."""
        super().reset(seed=seed)
        self._cell = self.start
        self._episode_steps = 0
        self._episode_over = False
        self._visits[self.start] += 1
        return self._observation(), {"cell": self.start}

    def step(self, action: int) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Walks one cell, or stays if there is a wall."""
        if self._episode_over:
            # Walking on would count visits to cells that `reachable` rightly excludes.
            raise RiseError("The maze has no running episode: call reset() before step().")
        direction = operator.index(action)
        if not 0 <= direction < 4:
            raise RiseError(f"action={action!r} is no direction: use 0 (up) to 3 (right).")
        previous = self._cell
        cell = self._successors[previous][direction]
        self._cell = cell
        self._visits[cell] += 1
        self.steps += 1
        self._episode_steps += 1

        reward = self.step_reward
        terminated = False
        if cell == self.goal and previous != cell:
            reward = self.goal_reward
            terminated = self.terminate_at_goal
            self.goals_reached += 1
            if self.first_goal_step is None:
                self.first_goal_step = self.steps
        truncated = not terminated and self._episode_steps >= self.max_steps
        self._episode_over = terminated or truncated
        return self._observation(), reward, terminated, truncated, {"cell": cell}

    def render(self) -> NDArray[np.uint8] | None:
        """A large picture of the maze, uint8 `[side, side, 3]`, or `None` without `render_mode`."""
        if self.render_mode is None:
            gym.logger.warn("render() needs render_mode='rgb_array' when the maze is made.")
            return None
        if self._render_picture is None:
            self._render_picture = large_picture(self.structure)
        return self._render_picture.with_agent(self._cell)

    def _observation(self) -> NDArray[Any]:
        # Copies rather than read-only arrays: torch.from_numpy warns about the latter.
        if self._image is None:
            return self._coordinates[self._cell].copy()
        return self._image.with_agent(self._cell)


def _scaled_coordinates(size: int) -> NDArray[np.float32]:
    """(row, column) of each cell in [-1, 1], `[size**2, 2]`."""
    axis = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    rows, columns = np.meshgrid(axis, axis, indexing="ij")
    return np.stack((rows, columns), axis=-1).reshape(size**2, 2)
