import copy
import itertools
import pickle
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components, shortest_path

from rllib_rise.envs import MAZE_ID, Maze, generate_maze, register
from rllib_rise.errors import ConfigError, RiseError

LAYOUTS = ("perfect", "loops", "portals")
REVERSE = {0: 1, 1: 0, 2: 3, 3: 2}
OFFSETS = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}

mazes = st.builds(
    generate_maze,
    st.integers(2, 9),
    st.sampled_from(LAYOUTS),
    loop_fraction=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)


def passage_graph(structure):
    """The undirected graph of open walls, by plain geometry and without the transition table."""
    size = structure.size
    edges = []
    for cell in range(size**2):
        for action, (down, right) in OFFSETS.items():
            if structure.passages[cell, action]:
                row, column = cell // size + down, cell % size + right
                assert 0 <= row < size
                assert 0 <= column < size
                edges.append((cell, row * size + column))
    rows, columns = zip(*edges, strict=True)
    return csr_matrix((np.ones(len(edges)), (rows, columns)), shape=(size**2, size**2))


def transition_graph(transitions, terminal=()):
    cells = len(transitions)
    graph = np.zeros((cells, cells))
    graph[np.arange(cells)[:, None], transitions] = 1
    graph[list(terminal)] = 0
    return csr_matrix(graph)


def shortest_actions(env, target):
    """Actions of a shortest walk from the start to a cell, found by scipy."""
    graph = transition_graph(env.transitions)
    _, predecessors = shortest_path(graph, indices=env.start, return_predecessors=True)
    cells = [target]
    while cells[-1] != env.start:
        cells.append(int(predecessors[cells[-1]]))
    cells.reverse()
    return [int(np.flatnonzero(env.transitions[a] == b)[0]) for a, b in itertools.pairwise(cells)]


def walk(env, actions):
    return [env.step(action) for action in actions]


def go_to(env, cell):
    env.reset()
    walk(env, shortest_actions(env, cell))


@pytest.mark.parametrize("observation", ["coordinates", "image"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gymnasium_checker_has_no_complaint(observation, layout):
    env = gym.make(MAZE_ID, size=5, observation=observation, layout=layout)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_id_works_in_a_process_that_did_not_import_the_package():
    program = (
        "import gymnasium as gym, sys;"
        "env = gym.make('rllib_rise.envs:rise/Maze-v0', size=4);"
        "env.reset(); env.step(1);"
        "assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_registering_twice_is_silent():
    before = gym.registry[MAZE_ID]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register()
    assert gym.registry[MAZE_ID] is before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_maze_seed_fixes_the_maze_and_reset_seed_does_not_touch_it(layout):
    first, second = Maze(layout=layout, maze_seed=3), Maze(layout=layout, maze_seed=3)
    first.reset(seed=1)
    second.reset(seed=2)
    np.testing.assert_array_equal(first.transitions, second.transitions)
    np.testing.assert_array_equal(first.structure.portals, second.structure.portals)
    assert not np.array_equal(first.transitions, Maze(layout=layout, maze_seed=4).transitions)


def test_maze_leaves_the_global_generator_alone():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    env = Maze(size=6, layout="portals")
    env.reset(seed=5)
    env.step(0)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


@given(st.integers(2, 12), st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_perfect_maze_is_a_spanning_tree(size, seed):
    structure = generate_maze(size, "perfect", seed=seed)
    assert structure.passages.sum() == 2 * (size**2 - 1)
    assert connected_components(passage_graph(structure))[0] == 1
    assert structure.portals.shape == (0, 2)


@given(st.integers(2, 12), st.integers(0, 2**32), st.floats(0, 1))
@settings(deadline=None, max_examples=40)
def test_loops_open_the_asked_number_of_walls_of_the_same_tree(size, seed, fraction):
    tree = generate_maze(size, "perfect", seed=seed).passages
    loops = generate_maze(size, "loops", loop_fraction=fraction, seed=seed).passages
    extra = (loops.sum() - tree.sum()) // 2
    assert (loops >= tree).all()
    walls_of_tree = 2 * size * (size - 1) - (size**2 - 1)
    asked = round(fraction * size**2)
    assert extra <= min(asked, walls_of_tree)
    # Each cell with a wall opens one or had one opened, so the extra passages are at least half as
    # many as such cells, and a tree leaves walls to about half of the cells: a fifth is possible.
    if fraction <= 0.2:
        assert extra == min(asked, walls_of_tree)


@given(mazes)
@settings(deadline=None, max_examples=60)
def test_walls_block_and_moves_can_be_undone(structure):
    transitions = structure.transitions()
    size, portals = structure.size, set(structure.portals.ravel().tolist())
    for cell in range(size**2):
        for action, (down, right) in OFFSETS.items():
            if not structure.passages[cell, action]:
                assert transitions[cell, action] == cell
                continue
            neighbor = cell + down * size + right
            assert structure.passages[neighbor, REVERSE[action]]
            if neighbor in portals:
                assert transitions[cell, action] != neighbor
                continue
            assert transitions[cell, action] == neighbor
            if cell not in portals:
                assert transitions[neighbor, REVERSE[action]] == cell


@given(mazes)
@settings(deadline=None, max_examples=60)
def test_goal_is_within_reach_of_every_cell_and_nothing_is_walled_off(structure):
    # Reversed edges from the goal: the cells found are those from which the goal can be reached.
    transitions = structure.transitions()
    backwards = transition_graph(transitions).T.tocsr()
    found = breadth_first_order(backwards, structure.goal, return_predecessors=False)
    assert len(found) == structure.size**2
    assert structure.reachable(through_goal=True).all()


@given(mazes, st.booleans())
@settings(deadline=None, max_examples=60)
def test_reachable_agrees_with_scipy(structure, through_goal):
    terminal = () if through_goal else (structure.goal,)
    graph = transition_graph(structure.transitions(), terminal)
    expected = np.zeros(structure.size**2, dtype=bool)
    expected[breadth_first_order(graph, structure.start, return_predecessors=False)] = True
    reachable = structure.reachable(through_goal=through_goal)
    np.testing.assert_array_equal(reachable.ravel(), expected)
    assert reachable.ravel()[structure.goal]


def test_reachable_excludes_the_cells_behind_a_goal_that_cuts_the_maze():
    def cells_behind_goal(seed):
        graph = passage_graph(generate_maze(6, "perfect", seed=seed)).tolil()
        graph[35, :] = 0
        graph[:, 35] = 0
        _, labels = connected_components(graph.tocsr())
        behind = labels != labels[0]
        behind[35] = False
        return behind

    seed, behind = next(
        (seed, cells) for seed in range(100) if (cells := cells_behind_goal(seed)).any()
    )
    env = Maze(size=6, maze_seed=seed)
    np.testing.assert_array_equal(env.reachable.ravel(), ~behind)
    assert Maze(size=6, maze_seed=seed, terminate_at_goal=False).reachable.all()


@pytest.mark.parametrize("size", [2, 3, 5, 10, 20])
def test_portals_come_in_pairs_apart_from_start_and_goal(size):
    for seed in range(10):
        structure = generate_maze(size, "portals", seed=seed)
        loops = generate_maze(size, "loops", seed=seed)
        cells = structure.portals.ravel()
        assert structure.portals.shape == (round(size / 3), 2)
        assert len(set(cells.tolist())) == len(cells)
        assert not {structure.start, structure.goal} & set(cells.tolist())
        np.testing.assert_array_equal(structure.passages, loops.passages)


def test_portal_teleports_once_and_only_when_entered():
    env = Maze(size=6, layout="portals", maze_seed=1)
    (portal, twin), *_ = env.structure.portals.tolist()
    go_to(env, twin)
    closed = np.flatnonzero(~env.structure.passages[twin])
    opened = np.flatnonzero(env.structure.passages[twin])
    for action in closed:
        *_, info = env.step(int(action))
        assert info["cell"] == twin
    *_, stepped_off = env.step(int(opened[0]))
    down, right = OFFSETS[int(opened[0])]
    assert stepped_off["cell"] == twin + down * 6 + right
    *_, stepped_back = env.step(REVERSE[int(opened[0])])
    assert stepped_back["cell"] == portal


def test_entering_the_goal_pays_and_terminates():
    env = Maze(size=5, goal_reward=2.0, step_reward=-0.5)
    env.reset()
    results = walk(env, shortest_actions(env, env.goal))
    assert [reward for _, reward, *_ in results[:-1]] == [-0.5] * (len(results) - 1)
    assert not any(terminated or truncated for _, _, terminated, truncated, _ in results[:-1])
    _, reward, terminated, truncated, info = results[-1]
    assert (reward, terminated, truncated, info) == (2.0, True, False, {"cell": 24})
    with pytest.raises(RiseError, match="reset"):
        env.step(0)


def test_without_termination_each_entry_pays_but_staying_does_not():
    env = Maze(size=5, terminate_at_goal=False)
    go_to(env, env.goal)
    entering = shortest_actions(env, env.goal)[-1]
    _, staying_reward, terminated, *_ = env.step(1)
    assert (staying_reward, terminated) == (0.0, False)
    results = walk(env, [REVERSE[entering], entering])
    assert [reward for _, reward, *_ in results] == [0.0, 1.0]
    assert env.goals_reached == 2


def test_truncation_at_max_steps():
    env = Maze(size=5, max_steps=3)
    for _ in range(2):
        env.reset()
        results = walk(env, [0, 0, 0])
        assert [truncated for *_, truncated, _ in results] == [False, False, True]
        assert not any(terminated for _, _, terminated, *_ in results)
    assert Maze(size=5).max_steps == 250


def test_goal_on_the_last_step_is_termination_and_not_truncation():
    steps = len(shortest_actions(Maze(size=5), 24))
    env = Maze(size=5, max_steps=steps)
    env.reset()
    _, _, terminated, truncated, _ = walk(env, shortest_actions(env, 24))[-1]
    assert (terminated, truncated) == (True, False)


def test_step_before_reset_and_unknown_actions_are_refused():
    env = Maze(size=3)
    with pytest.raises(RiseError, match="reset"):
        env.step(0)
    env.reset()
    for action in (-1, 4):
        with pytest.raises(RiseError, match=f"action={action}"):
            env.step(action)
    assert env.steps == 0


@pytest.mark.parametrize("observation", ["coordinates", "image"])
def test_observations_belong_to_the_caller(observation):
    env = Maze(size=5, observation=observation, maze_seed=2, terminate_at_goal=False)
    actions = np.random.default_rng(0).integers(4, size=60)
    seen = [env.reset()[0]] + [result[0] for result in walk(env, actions)]
    snapshots = copy.deepcopy(seen)
    env.reset()
    walk(env, actions)
    for kept, snapshot in zip(seen, snapshots, strict=True):
        np.testing.assert_array_equal(kept, snapshot)
    # Nor can the caller spoil what the environment returns later.
    for kept in seen:
        kept[...] = 0
    np.testing.assert_array_equal(env.reset()[0], snapshots[0])


def test_coordinates_are_row_and_column_scaled_to_the_corners():
    env = Maze(size=5, terminate_at_goal=False)
    start, _ = env.reset()
    np.testing.assert_array_equal(start, [-1, -1])
    assert start.dtype == np.float32
    for cell in range(25):
        env.reset()
        observation = start
        for observation, *_ in walk(env, shortest_actions(env, cell)):
            assert observation in env.observation_space
        np.testing.assert_allclose(observation, [cell // 5 / 2 - 1, cell % 5 / 2 - 1])


def test_statistics_of_a_known_walk():
    env = Maze(size=5, maze_seed=1)
    path = shortest_actions(env, env.goal)
    env.reset()
    walk(env, [0, 2])
    assert env.exploration_statistics()["first_goal_step"] is None
    results = walk(env, path)
    cells = [info["cell"] for *_, info in results]
    env.reset()
    walk(env, path)

    expected = np.zeros(25, dtype=np.int64)
    expected[cells] += 2
    expected[0] += 2 + 2
    statistics = env.exploration_statistics()
    np.testing.assert_array_equal(statistics["visit_counts"].ravel(), expected)
    assert statistics["visit_counts"].dtype == np.int64
    assert statistics["visit_counts"].sum() == statistics["steps"] + 2
    assert statistics["steps"] == 2 + 2 * len(path)
    assert statistics["goals_reached"] == 2
    assert statistics["first_goal_step"] == 2 + len(path)
    np.testing.assert_array_equal(statistics["reachable"], env.reachable)


def test_statistics_are_copies():
    env = Maze(size=4)
    env.reset()
    statistics = env.exploration_statistics()
    statistics["visit_counts"][:] = 99
    statistics["reachable"][:] = False
    assert env.visit_counts.sum() == 1
    assert env.reachable.any()


def test_visits_count_the_end_of_a_teleport_and_not_its_entrance():
    env = Maze(size=6, layout="portals", maze_seed=1)
    rng = np.random.default_rng(0)
    expected = np.zeros(36, dtype=np.int64)
    for _ in range(5):
        _, info = env.reset()
        over = False
        while not over:
            expected[info["cell"]] += 1
            *_, terminated, truncated, info = env.step(rng.integers(4))
            over = terminated or truncated
        expected[info["cell"]] += 1
    np.testing.assert_array_equal(env.visit_counts.ravel(), expected)
    assert not env.visit_counts[~env.reachable].any()


@pytest.mark.parametrize(("size", "image_size"), [(2, 5), (5, 84), (7, 15), (9, 50), (20, 84)])
def test_every_cell_has_its_own_image(size, image_size):
    env = Maze(size=size, layout="portals", observation="image", image_size=image_size)
    images = set()
    for cell in np.flatnonzero(env.reachable):
        env._cell = int(cell)
        image = env._observation()
        assert image in env.observation_space
        images.add(image.tobytes())
    assert len(images) == env.reachable.sum()


def test_image_moves_exactly_the_agents_block():
    env = Maze(size=5, observation="image", image_size=11)
    before, _ = env.reset()
    action = int(np.flatnonzero(env.structure.passages[0])[0])
    after, *_ = env.step(action)
    down, right = OFFSETS[action]
    changed = np.argwhere((before != after).any(axis=-1)).tolist()
    # With one pixel per cell and wall, cell (row, column) is pixel (2 row + 1, 2 column + 1).
    assert sorted(changed) == sorted([[1, 1], [1 + 2 * down, 1 + 2 * right]])


def test_image_shows_walls_where_the_structure_has_them():
    env = Maze(size=6, layout="loops", observation="image", image_size=13)
    image, _ = env.reset()
    wall = image[0, 0]
    for cell in range(36):
        row, column = divmod(cell, 6)
        for action, (down, right) in OFFSETS.items():
            pixel = image[2 * row + 1 + down, 2 * column + 1 + right]
            assert (pixel == wall).all() == (not env.structure.passages[cell, action])


@pytest.mark.parametrize("size", [2, 5, 20, 80])
def test_render_is_a_square_even_picture_that_shows_the_agent(size):
    env = Maze(size=size, layout="portals", render_mode="rgb_array")
    env.reset()
    frame = env.render()
    assert frame.dtype == np.uint8
    assert frame.ndim == 3
    assert frame.shape[0] == frame.shape[1]
    assert frame.shape[0] % 2 == 0
    assert frame.shape[2] == 3
    env.step(int(np.flatnonzero(env.structure.passages[0])[0]))
    assert not np.array_equal(env.render(), frame)


def test_render_without_mode_returns_nothing():
    env = Maze(size=3)
    env.reset()
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 1}, "size=1 .* >= 2"),
        ({"size": 5.0}, "size=5.0 .* integer"),
        ({"size": True}, "size=True"),
        ({"layout": "spiral"}, "layout='spiral' .*'perfect', 'loops', 'portals'"),
        ({"observation": "pixels"}, "observation='pixels' .*'coordinates', 'image'"),
        ({"observation": "image", "size": 20, "image_size": 40}, "image_size=40 .* >= 41"),
        ({"observation": "image", "image_size": 84.0}, "image_size=84.0"),
        ({"max_steps": 0}, "max_steps=0 .* >= 1"),
        ({"loop_fraction": -0.1}, "loop_fraction=-0.1 .* 0 to 1"),
        ({"loop_fraction": float("nan")}, "loop_fraction=nan"),
        ({"maze_seed": -1}, "maze_seed=-1 .* >= 0"),
        ({"goal_reward": float("inf")}, "goal_reward=inf"),
        ({"step_reward": float("nan")}, "step_reward=nan"),
        ({"render_mode": "human"}, "render_mode='human'"),
    ],
)
def test_impossible_arguments_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Maze(**arguments)


def test_smallest_image_is_accepted():
    env = Maze(size=20, observation="image", image_size=41)
    assert env.reset()[0].shape == (41, 41, 3)


def test_static_arrays_are_read_only():
    env = Maze(size=4, layout="portals")
    for array in (
        env.transitions,
        env.reachable,
        env.structure.passages,
        env.structure.portals,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_pickled_environment_goes_on_where_it_was():
    env = Maze(size=5, layout="portals")
    env.reset()
    env.step(1)
    clone = pickle.loads(pickle.dumps(env))  # noqa: S301 - our own bytes
    for action in (1, 3, 1, 3):
        mine, theirs = env.step(action), clone.step(action)
        np.testing.assert_array_equal(mine[0], theirs[0])
        assert mine[1:] == theirs[1:]
    np.testing.assert_array_equal(env.visit_counts, clone.visit_counts)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("observation", ["coordinates", "image"])
def test_vector_environments_share_the_maze_and_report_statistics(mode, observation):
    envs = gym.make_vec(
        f"rllib_rise.envs:{MAZE_ID}",
        num_envs=2,
        vectorization_mode=mode,
        size=4,
        maze_seed=1,
        max_steps=9,
        observation=observation,
    )
    try:
        observations, infos = envs.reset(seed=0)
        assert observations in envs.observation_space
        assert infos["cell"].tolist() == [0, 0]
        for _ in range(25):
            observations, *_ = envs.step(envs.action_space.sample())
            assert observations in envs.observation_space
        first, second = envs.call("exploration_statistics")
        transitions = envs.get_attr("transitions")
    finally:
        envs.close()
    np.testing.assert_array_equal(transitions[0], transitions[1])
    for statistics in (first, second):
        # 25 calls with automatic resets: each was either a step or a reset, after the first reset.
        assert statistics["visit_counts"].sum() == 26
        assert statistics["steps"] < 25
        assert statistics["visit_counts"].shape == statistics["reachable"].shape == (4, 4)
