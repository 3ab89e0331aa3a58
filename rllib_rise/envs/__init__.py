"""Environments for exploration experiments, registered with Gymnasium on import.

`gymnasium.make("rllib_rise.envs:rise/Maze-v0")` imports this package first, so the same string
works in a process that has not imported it yet, such as a remote worker.
"""

import gymnasium as gym

from rllib_rise.envs.maze import ExplorationStatistics, Maze
from rllib_rise.envs.maze_structure import MazeStructure, generate_maze

ATARI_ID = "rise/Atari-v0"
MAZE_ID = "rise/Maze-v0"
MINIGRID_ID = "rise/MiniGrid-v0"
MOUNTAIN_CAR_IDS = ("rise/MountainCar-v0", "rise/MountainCarContinuous-v0")
IDS = {
    MAZE_ID: "rllib_rise.envs.maze:Maze",
    ATARI_ID: "rllib_rise.envs.atari:Atari",
    MINIGRID_ID: "rllib_rise.envs.minigrid:MiniGrid",
    MOUNTAIN_CAR_IDS[0]: "rllib_rise.envs.mountain_car:MountainCar",
    MOUNTAIN_CAR_IDS[1]: "rllib_rise.envs.mountain_car:MountainCarContinuous",
}
"""Every Gymnasium id of this package, with its entry point."""
_WALKERS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Walker2D")
VECTOR_ENTRY_POINTS = {
    ATARI_ID: "rllib_rise.envs.atari:AtariVector",
    "InvertedPendulumBulletEnv-v0": "rllib_rise.envs.bullet_vector:PendulumVector",
    **{f"{name}BulletEnv-v0": "rllib_rise.envs.bullet_vector:WalkerVector" for name in _WALKERS},
}
"""Those that have a vector environment of ours; Bullet's also take the id."""

__all__ = [
    "ATARI_ID",
    "IDS",
    "MAZE_ID",
    "MINIGRID_ID",
    "MOUNTAIN_CAR_IDS",
    "VECTOR_ENTRY_POINTS",
    "ExplorationStatistics",
    "Maze",
    "MazeStructure",
    "generate_maze",
    "register",
]


def register() -> None:
    """Makes the environments known to Gymnasium; calling it again changes nothing."""
    for env_id, entry_point in IDS.items():
        if env_id not in gym.registry:
            gym.register(
                id=env_id,
                entry_point=entry_point,
                vector_entry_point=VECTOR_ENTRY_POINTS.get(env_id),
            )


register()
