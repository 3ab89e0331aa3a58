"""The structure of a maze: which cells there are, what leads where. Pure, seeded."""

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rllib_rise.errors import ConfigError

Layout = Literal["perfect", "loops", "portals"]

UP, DOWN, LEFT, RIGHT = range(4)
_REVERSE = (DOWN, UP, RIGHT, LEFT)


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
    size = check_integer("size", size, minimum=2)
    seed = check_integer("seed", seed, minimum=0)
    check_choice("layout", layout, Layout)
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


def check_integer(name: str, value: Any, *, minimum: int) -> int:
    """The value as an `int`, or a `ConfigError` that names it."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
        raise ConfigError(f"{name}={value!r} is not possible: use an integer >= {minimum}.")
    return int(value)


def check_choice(name: str, value: Any, options: Any) -> None:
    """Refuse what is not among the values of a `Literal`."""
    if value not in get_args(options):
        known = ", ".join(repr(option) for option in get_args(options))
        raise ConfigError(f"{name}={value!r} is unknown: use one of {known}.")
