"""A seeded grid maze whose exploration can be measured exactly.

The maze is a square grid with the start at the top left and the goal at the bottom right. The
dynamics are deterministic and given by one table, so that tabular algorithms, coverage statistics
and the environment itself cannot disagree.
"""

import colorsys
import math
import operator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, TypedDict, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rllib_rise.errors import ConfigError, RiseError

Layout = Literal["perfect", "loops", "portals"]
ObservationKind = Literal["coordinates", "image"]

UP, DOWN, LEFT, RIGHT = range(4)
_REVERSE = (DOWN, UP, RIGHT, LEFT)

_WALL = (38, 42, 54)
_FLOOR = (246, 244, 238)
_START = (168, 200, 236)
_GOAL = (64, 168, 92)
_AGENT = (222, 62, 48)


class ExplorationStatistics(TypedDict):
    """What one environment instance has seen so far, and what it could see."""

    visit_counts: NDArray[np.int64]
    reachable: NDArray[np.bool_]
    goals_reached: int
    first_goal_step: int | None
    steps: int


@dataclass(frozen=True, eq=False)
class MazeStructure:
    """The walls and portals of a maze. Cells are numbered `row * size + column`.

    Attributes:
        size: Cells per side.
        passages: `[size**2, 4]`, whether the side of a cell towards up, down, left, right is open.
        portals: `[pairs, 2]`, the two cells of each pair of portals.
    """

    size: int
    passages: NDArray[np.bool_]
    portals: NDArray[np.int64]

    @property
    def start(self) -> int:
        """The top left cell."""
        return 0

    @property
    def goal(self) -> int:
        """The bottom right cell."""
        return self.size**2 - 1

    def transitions(self) -> NDArray[np.int64]:
        """The cell where each action ends, `[size**2, 4]`.

        A closed side leaves the agent where it is. An open side that leads into a portal ends at
        the portal's twin. The goal gets no special treatment: ending the episode is up to the
        caller.
        """
        cells = np.arange(self.size**2)
        exits = cells.copy()
        exits[self.portals] = self.portals[:, ::-1]
        return np.where(self.passages, exits[_neighbors(self.size)], cells[:, None])

    def reachable(self, *, through_goal: bool) -> NDArray[np.bool_]:
        """The start and the cells in which a step of a walk from it can end, `[size, size]`.

        Args:
            through_goal: Whether the walk may go on after the goal. If not, cells whose every route
                passes the goal are left out.
        """
        successors = self.transitions().tolist()
        reached = np.zeros(self.size**2, dtype=np.bool_)
        reached[self.start] = True
        frontier = [self.start]
        while frontier:
            cell = frontier.pop()
            if cell == self.goal and not through_goal:
                continue
            for successor in successors[cell]:
                if not reached[successor]:
                    reached[successor] = True
                    frontier.append(successor)
        return reached.reshape(self.size, self.size)


def generate_maze(
    size: int, layout: Layout = "perfect", *, loop_fraction: float = 0.2, seed: int = 0
) -> MazeStructure:
    """Draws a maze; the arguments determine it completely.

    1. `perfect`: a randomised depth-first search over the grid, from a random cell, opens the walls
       that it crosses. The passages form a spanning tree: one simple path joins any two cells.
    2. `loops`: the same tree, and then `round(loop_fraction * size**2)` cells in random order each
       lose one more wall. A cell without an inner wall left passes its turn on, so the number is
       exact up to the default fraction; large fractions may run out of cells before it.
    3. `portals`: the same loops, and `round(size / 3)` pairs of portals. Start and goal are never
       portals, and no two portals touch: an agent that was teleported can then always step off the
       portal and back onto it to return, so no portal traps it and the goal stays within reach.

    Args:
        size: Cells per side, at least 2.
        layout: One of the three kinds above.
        loop_fraction: Share of the cells that lose an extra wall, in [0, 1]. A `perfect` maze has
            no loops and ignores it.
        seed: Seed of the generator, non-negative. Equal seeds give the three layouts one tree.

    Returns:
        The structure, with read-only arrays.

    Raises:
        ConfigError: If an argument is out of its range.
    """
    size = _integer("size", size, minimum=2)
    seed = _integer("seed", seed, minimum=0)
    _choice("layout", layout, Layout)
    if not 0.0 <= loop_fraction <= 1.0:
        raise ConfigError(
            f"loop_fraction={loop_fraction!r} is no share of the cells: use a number from 0 to 1."
        )
    rng = np.random.default_rng(seed)
    passages = _spanning_tree(size, rng)
    portals = np.zeros((0, 2), dtype=np.int64)
    if layout != "perfect":
        _open_loops(passages, round(loop_fraction * size**2), rng)
    if layout == "portals":
        portals = _place_portals(size, rng)
    passages.flags.writeable = False
    portals.flags.writeable = False
    return MazeStructure(size=size, passages=passages, portals=portals)


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
        size = _integer("size", size, minimum=2)
        maze_seed = _integer("maze_seed", maze_seed, minimum=0)
        _choice("observation", observation, ObservationKind)
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
        self.max_steps = _integer("max_steps", max_steps, minimum=1)
        self.goal_reward = float(goal_reward)
        self.step_reward = float(step_reward)
        self.terminate_at_goal = bool(terminate_at_goal)
        self.render_mode = render_mode
        self.transitions = self.structure.transitions()
        self.reachable = self.structure.reachable(through_goal=not self.terminate_at_goal)
        self.transitions.flags.writeable = False
        self.reachable.flags.writeable = False

        self.action_space = gym.spaces.Discrete(4)
        self._image: _Picture | None = None
        self._render_picture: _Picture | None = None
        if observation == "image":
            self._image = _observation_picture(self.structure, image_size)
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
            self._render_picture = _large_picture(self.structure)
        return self._render_picture.with_agent(self._cell)

    def _observation(self) -> NDArray[Any]:
        # Copies rather than read-only arrays: torch.from_numpy warns about the latter.
        if self._image is None:
            return self._coordinates[self._cell].copy()
        return self._image.with_agent(self._cell)


class _Picture:
    """A maze painted once, onto copies of which the agent is drawn.

    Args:
        structure: The maze.
        cell: Side of a cell in pixels.
        wall: Thickness of a wall in pixels.
        side: Side of the picture; what the maze leaves over becomes a border of wall.
        discs: Draw agent and portals as smooth discs, for people, and not as full blocks.
    """

    def __init__(
        self, structure: MazeStructure, *, cell: int, wall: int, side: int, discs: bool
    ) -> None:
        used = structure.size * (cell + wall) + wall
        border = (side - used) // 2
        self._size = structure.size
        self._cell = cell
        self._pitch = cell + wall
        self._origin = border + wall
        self._agent = _disc(cell, 0.72) if discs else None

        # Odd rows and columns of the block map are cells, even ones the walls between them.
        blocks = np.full((2 * self._size + 1, 2 * self._size + 1, 3), _WALL, dtype=np.uint8)
        grid = structure.passages.reshape(self._size, self._size, 4)
        blocks[1::2, 1::2] = _FLOOR
        blocks[2::2, 1::2][grid[:, :, DOWN]] = _FLOOR
        blocks[1::2, 2::2][grid[:, :, RIGHT]] = _FLOOR
        # A corner where no wall ends would be a speck in the middle of a room.
        bare = grid[:-1, :-1, RIGHT] & grid[1:, :-1, RIGHT]
        bare = bare & grid[:-1, :-1, DOWN] & grid[:-1, 1:, DOWN]
        blocks[2:-1:2, 2:-1:2][bare] = _FLOOR
        thickness = np.full(2 * self._size + 1, wall)
        thickness[1::2] = cell
        maze = blocks.repeat(thickness, axis=0).repeat(thickness, axis=1)
        self._background = np.full((side, side, 3), _WALL, dtype=np.uint8)
        self._background[border : border + used, border : border + used] = maze

        self._paint(self._background, structure.start, _START)
        self._paint(self._background, structure.goal, _GOAL)
        ring = _disc(cell, 0.96) - _disc(cell, 0.66) if discs else None
        colors = _portal_colors(len(structure.portals))
        for pair, color in zip(structure.portals.tolist(), colors, strict=True):
            for portal in pair:
                self._paint(self._background, portal, color, ring)

    def with_agent(self, cell: int) -> NDArray[np.uint8]:
        """A fresh picture with the agent in a cell."""
        picture = self._background.copy()
        self._paint(picture, cell, _AGENT, self._agent)
        return picture

    def _paint(
        self,
        picture: NDArray[np.uint8],
        cell: int,
        color: tuple[int, int, int],
        opacity: NDArray[np.float64] | None = None,
    ) -> None:
        row, column = divmod(cell, self._size)
        top = self._origin + row * self._pitch
        left = self._origin + column * self._pitch
        block = picture[top : top + self._cell, left : left + self._cell]
        if opacity is None:
            block[:] = color
        else:
            block[:] = np.rint(block + opacity * (np.asarray(color) - block.astype(np.float64)))


def _observation_picture(structure: MazeStructure, image_size: int) -> _Picture:
    minimum = 2 * structure.size + 1
    image_size = _integer("image_size", image_size, minimum=1)
    if image_size < minimum:
        raise ConfigError(
            f"image_size={image_size} cannot show a maze of size={structure.size} with a pixel per "
            f"cell and wall: use image_size >= {minimum}, or a smaller maze."
        )
    wall = max(1, image_size // (8 * structure.size))
    cell = (image_size - wall * (structure.size + 1)) // structure.size
    return _Picture(structure, cell=cell, wall=wall, side=image_size, discs=False)


def _large_picture(structure: MazeStructure) -> _Picture:
    # Even thicknesses give an even side, which video encoders ask for.
    cell = max(8, 2 * min(32, 260 // structure.size))
    wall = 2 * max(1, cell // 12)
    side = structure.size * (cell + wall) + wall
    return _Picture(structure, cell=cell, wall=wall, side=side, discs=True)


def _disc(side: int, diameter: float) -> NDArray[np.float64]:
    """Opacity `[side, side, 1]` of a centred disc; its diameter is relative to the side."""
    offset = np.arange(side) - (side - 1) / 2
    distance = np.hypot(offset[:, None], offset[None, :])
    return np.clip(diameter * side / 2 - distance + 0.5, 0.0, 1.0)[:, :, None]


def _portal_colors(pairs: int) -> list[tuple[int, int, int]]:
    # Amber, then cyan to magenta: the hues that neither the agent's red nor the goal's green use.
    # Every other pair is darker, so that neighbouring hues can be told apart.
    colors = []
    for pair, hue in enumerate((0.13, *np.linspace(0.5, 0.87, max(pairs - 1, 0)).tolist())[:pairs]):
        rgb = colorsys.hsv_to_rgb(hue, 0.8, 0.95 if pair % 2 == 0 else 0.65)
        red, green, blue = (round(255 * channel) for channel in rgb)
        colors.append((red, green, blue))
    return colors


def _neighbors(size: int) -> NDArray[np.int64]:
    """The cell up, down, left and right of each cell, `[size**2, 4]`; -1 outside the grid."""
    padded = np.pad(np.arange(size**2).reshape(size, size), 1, constant_values=-1)
    sides = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    return np.stack(sides, axis=-1).reshape(size**2, 4)


def _spanning_tree(size: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    neighbors = _neighbors(size).tolist()
    passages = np.zeros((size**2, 4), dtype=np.bool_)
    root = int(rng.integers(size**2))
    visited = {root}
    path = [root]
    while path:
        cell = path[-1]
        fresh = [d for d, n in enumerate(neighbors[cell]) if n >= 0 and n not in visited]
        if not fresh:
            path.pop()
            continue
        direction = fresh[rng.integers(len(fresh))]
        neighbor = neighbors[cell][direction]
        _open_wall(passages, cell, direction, neighbor)
        visited.add(neighbor)
        path.append(neighbor)
    return passages


def _open_loops(passages: NDArray[np.bool_], count: int, rng: np.random.Generator) -> None:
    neighbors = _neighbors(math.isqrt(len(passages)))
    opened = 0
    for cell in rng.permutation(len(passages)):
        if opened == count:
            return
        closed = np.flatnonzero(~passages[cell] & (neighbors[cell] >= 0))
        if len(closed):
            direction = int(rng.choice(closed))
            _open_wall(passages, cell, direction, neighbors[cell, direction])
            opened += 1


def _open_wall(passages: NDArray[np.bool_], cell: int, direction: int, neighbor: int) -> None:
    passages[cell, direction] = True
    passages[neighbor, _REVERSE[direction]] = True


def _place_portals(size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    # Greedy choice in random order cannot run dry: a portal rules out five cells at most.
    neighbors = _neighbors(size)
    pairs = round(size / 3)
    excluded = {0, size**2 - 1}
    portals: list[int] = []
    for cell in rng.permutation(size**2).tolist():
        if len(portals) == 2 * pairs:
            break
        if cell not in excluded:
            portals.append(cell)
            excluded.update((cell, *neighbors[cell].tolist()))
    return np.array(portals, dtype=np.int64).reshape(pairs, 2)


def _scaled_coordinates(size: int) -> NDArray[np.float32]:
    """(row, column) of each cell in [-1, 1], `[size**2, 2]`."""
    axis = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    rows, columns = np.meshgrid(axis, axis, indexing="ij")
    return np.stack((rows, columns), axis=-1).reshape(size**2, 2)


def _integer(name: str, value: Any, *, minimum: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
        raise ConfigError(f"{name}={value!r} is not possible: use an integer >= {minimum}.")
    return int(value)


def _choice(name: str, value: Any, options: Any) -> None:
    if value not in get_args(options):
        known = ", ".join(repr(option) for option in get_args(options))
        raise ConfigError(f"{name}={value!r} is unknown: use one of {known}.")
