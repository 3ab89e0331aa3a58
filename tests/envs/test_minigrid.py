from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rllib_rise.envs  # noqa: F401 (registers the ids)
from rllib_rise.envs.figures import EPISODE_FIGURES
from rllib_rise.envs.minigrid import MiniGrid
from rllib_rise.errors import ConfigError

LEFT, RIGHT, FORWARD, PICKUP, _, TOGGLE, _ = range(7)
pytestmark = pytest.mark.filterwarnings("ignore:.*unwrapped version")


def go_to(env: MiniGrid, place: tuple[int, int]) -> list:
    """Walk over free cells until the agent looks at a place; the last step's return."""
    grid = env.unwrapped
    start = tuple(int(x) for x in grid.agent_pos)
    routes, queue = {start: None}, [start]
    while queue:
        here = queue.pop(0)
        for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1)):
            cell = (here[0] + dx, here[1] + dy)
            if cell == place:
                queue.clear()
                routes.setdefault(cell, here)
                break
            thing = grid.grid.get(*cell)
            free = thing is None or (thing.type == "door" and thing.is_open)
            if free and cell not in routes:
                routes[cell] = here
                queue.append(cell)
    path = [place]
    while routes[path[-1]] is not None:
        path.append(routes[path[-1]])
    last: list = []
    for cell in path[-2::-1]:
        wanted = (cell[0] - grid.agent_pos[0], cell[1] - grid.agent_pos[1])
        while tuple(grid.dir_vec) != wanted:
            last = list(env.step(RIGHT))
        if cell != place:
            last = list(env.step(FORWARD))
    return last


def place_of(env: MiniGrid, kind: str) -> tuple[int, int]:
    grid = env.unwrapped.grid
    cells = ((x, y) for x in range(grid.width) for y in range(grid.height))
    return next(c for c in cells if (thing := grid.get(*c)) is not None and thing.type == kind)


def test_gymnasium_finds_nothing_wrong():
    check_env(gym.make("rise/MiniGrid-v0"), skip_render_check=True)


def test_observations_are_one_hot():
    env = gym.make("rise/MiniGrid-v0", task="DoorKey-8x8")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (7 * 7 * 20 + 4,)
    kinds, colors, states, direction = np.split(obs, [49 * 11, 49 * 17, 49 * 20])
    for part, choices in ((kinds, 11), (colors, 6), (states, 3), (direction, 4)):
        assert np.array_equal(part.reshape(-1, choices).sum(1), np.ones(len(part) // choices))
    turned = env.step(LEFT)[0]
    assert not np.array_equal(obs, turned)


def test_a_solved_episode_tells_of_key_and_door_and_counts_as_a_goal():
    env = MiniGrid("DoorKey-6x6")
    env.reset(seed=3)
    go_to(env, place_of(env, "key"))
    env.step(PICKUP)
    go_to(env, place_of(env, "door"))
    env.step(TOGGLE)
    go_to(env, place_of(env, "goal"))
    _, reward, terminated, _, info = env.step(FORWARD)
    assert terminated
    assert 0 < reward < 1
    assert info[EPISODE_FIGURES] == {"key_taken": 1.0, "door_opened": 1.0}
    seen = env.exploration_statistics()
    assert seen["goals_reached"] == 1
    assert seen["first_goal_step"] == seen["steps"]
    assert seen["visit_counts"].sum() == seen["steps"] + 1
    assert seen["visit_counts"][~seen["reachable"]].sum() == 0


def test_an_episode_without_success_says_so_when_it_ends():
    env = MiniGrid("DoorKey-5x5")
    env.reset(seed=0)
    while True:
        _, reward, terminated, truncated, info = env.step(LEFT)
        if terminated or truncated:
            break
        assert EPISODE_FIGURES not in info
    assert env.exploration_statistics()["steps"] == 250
    assert reward == 0
    assert info[EPISODE_FIGURES] == {"key_taken": 0.0, "door_opened": 0.0}


def test_tasks_without_a_door_tell_nothing_of_it():
    env = MiniGrid("Empty-5x5")
    env.reset(seed=0)
    while True:
        _, _, terminated, truncated, info = env.step(LEFT)
        if terminated or truncated:
            break
    assert info[EPISODE_FIGURES] == {}


def test_an_unknown_task_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match="DoorKey-8x8"):
        MiniGrid("DoorKey-9x9")
