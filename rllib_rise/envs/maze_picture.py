"""Pictures of a maze: small ones that an agent observes, large ones for people."""

import colorsys

import numpy as np
from numpy.typing import NDArray

from rllib_rise.envs.maze_structure import DOWN, RIGHT, MazeStructure, check_integer
from rllib_rise.errors import ConfigError

_WALL = (38, 42, 54)
_FLOOR = (246, 244, 238)
_START = (168, 200, 236)
_GOAL = (64, 168, 92)
_AGENT = (222, 62, 48)


class MazePicture:
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


def observation_picture(structure: MazeStructure, image_size: int) -> MazePicture:
    """A picture of exactly `image_size` pixels, as cheap to draw on as can be."""
    minimum = 2 * structure.size + 1
    image_size = check_integer("image_size", image_size, minimum=1)
    if image_size < minimum:
        raise ConfigError(
            f"image_size={image_size} cannot show a maze of size={structure.size} with a pixel per "
            f"cell and wall: use image_size >= {minimum}, or a smaller maze."
        )
    wall = max(1, image_size // (8 * structure.size))
    cell = (image_size - wall * (structure.size + 1)) // structure.size
    return MazePicture(structure, cell=cell, wall=wall, side=image_size, discs=False)


def large_picture(structure: MazeStructure) -> MazePicture:
    """A picture for people."""
    # Even thicknesses give an even side, which video encoders ask for.
    cell = max(8, 2 * min(32, 260 // structure.size))
    wall = 2 * max(1, cell // 12)
    side = structure.size * (cell + wall) + wall
    return MazePicture(structure, cell=cell, wall=wall, side=side, discs=True)


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
