"""Atari against ALE itself: the same frames, and returns counted by hand."""

from __future__ import annotations

import builtins
import sys

import gymnasium as gym
import numpy as np
import pytest

from rllib_rise.envs import ATARI_ID
from rllib_rise.errors import ConfigError, MissingExtraError

ale_py = pytest.importorskip("ale_py")
GAME = "SpaceInvaders"


def make(num_envs: int, **arguments):
    return gym.make_vec(ATARI_ID, num_envs, game=GAME, **arguments)


def play(env, steps: int, *, seed: int = 5, actions_seed: int = 0) -> list[tuple]:
    """Random play; every array as it was returned, next to a copy of the observations."""
    rng = np.random.default_rng(actions_seed)
    obs, info = env.reset(seed=seed)
    path = [(obs, obs.copy(), None, None, None, info)]
    for _ in range(steps):
        obs, *rest = env.step(rng.integers(0, 6, env.num_envs))
        path.append((obs, obs.copy(), *rest))
    return path


def by_hand(seed: int, waits: int, actions: np.ndarray) -> np.ndarray:
    """The newest image of each step: bare emulator, OpenCV's area interpolation."""
    import cv2

    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path("space_invaders"))
    noop, fire, *_ = legal = ale.getMinimalActionSet()
    for action in [noop] * waits + [fire]:
        ale.act(action)
    frames = [ale.getScreenGrayscale()]
    for action in actions:
        screens = []
        for _ in range(4):
            ale.act(legal[action])
            screens.append(ale.getScreenGrayscale())
        frames.append(np.maximum(*screens[-2:]))
    return np.array([cv2.resize(f, (84, 84), interpolation=cv2.INTER_AREA) for f in frames])


def test_frames_are_those_of_the_bare_emulator():
    # The random waiting time at the start is ALE's secret, and shows in its frame counter.
    env = make(1, episodic_life=False).unwrapped
    actions = np.random.default_rng(1).integers(0, 6, 100)
    frames = [env.reset(seed=5)[0][0, -1]]
    waits = int(env._native.reset(seed=5)[1]["frame_number"][0]) - 1
    env.reset(seed=5)
    frames += [env.step(np.array([action]))[0][0, -1] for action in actions]
    np.testing.assert_array_equal(frames, by_hand(5, waits, actions))


def test_observations_are_four_images_as_bytes_that_nobody_writes_to_again():
    path = play(make(2), 300)
    obs = path[0][0]
    assert obs.shape == (2, 4, 84, 84)
    assert obs.dtype == np.uint8
    for returned, copied, *_ in path:
        np.testing.assert_array_equal(returned, copied)


def test_one_seed_gives_one_game_on_any_number_of_threads_and_others_differ():
    # Long enough for new games, whose waiting times must follow from the seed as well.
    first, second = (play(make(3, threads=threads), 700) for threads in (1, 2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    assert any(step[5]["lives"][0] == 0 for step in first[1:]), "no game came to its end"
    assert (first[0][0][0] != first[0][0][1]).any()
    assert (play(make(3), 1, seed=6)[0][0][0] != first[0][0][0]).any()


@pytest.mark.parametrize("seed", [[5, 6], np.int64(5), np.array([5, 6])], ids=str)
def test_seeds_may_be_numbers_of_any_kind_and_lists(seed):
    env = make(2)
    np.testing.assert_array_equal(env.reset(seed=seed)[0], env.reset(seed=5)[0])


def test_a_single_environment_plays_the_same_game_as_the_native_one():
    index, native = 1, play(make(2), 700)
    single = gym.make(ATARI_ID, game=GAME)
    rng = np.random.default_rng(0)
    obs, info = single.reset(seed=5 + index)
    np.testing.assert_array_equal(obs, native[0][0][index])
    over, ends = False, 0
    for expected in native[1:]:
        action = rng.integers(0, 6, 2)[index]
        if over:  # the step of a vector environment that stands for a reset
            obs, info = single.reset()
            over = False
        else:
            obs, reward, terminated, truncated, info = single.step(action)
            assert (reward, terminated, truncated) == tuple(part[index] for part in expected[2:5])
            over = terminated or truncated
            ends += over
        np.testing.assert_array_equal(obs, expected[0][index])
        assert info["lives"] == expected[5]["lives"][index]
    assert ends >= 3


def test_a_lost_life_ends_the_episode_and_not_the_game():
    path = play(make(1), 900)
    lives = np.array([step[5]["lives"][0] for step in path])
    ends = [t for t in range(1, len(path)) if path[t][3][0]]
    assert {int(lives[t]) for t in ends} == {2, 1, 0}
    for t in ends[:-1]:
        assert lives[t + 1] == (3 if lives[t] == 0 else lives[t])
        reset = path[t + 1]
        assert not reset[3][0]
        older, newest = reset[0][0, :3], reset[0][0, 3]
        assert not older.any(), "images of the last life show through"
        assert newest.any()
        assert not path[t + 3][0][0, 0].any()
        assert path[t + 4][0][0, 0].any()


def test_without_episodic_life_only_the_game_ends_the_episode():
    path = play(make(1, episodic_life=False), 900)
    ends = [step for step in path[1:] if step[3][0]]
    assert ends
    assert all(step[5]["lives"][0] == 0 for step in ends)
    assert all("one_life_return" not in step[5]["episode_figures"] for step in ends)


def test_figures_are_unclipped_returns_counted_by_hand():
    num_envs = 2
    path = play(make(num_envs), 1000)
    # The same actions once more on the bare vector environment, whose rewards are the truth.
    bare = ale_py.AtariVectorEnv("space_invaders", num_envs, reward_clipping=False, num_threads=1)
    bare.reset(seed=5)
    rng = np.random.default_rng(0)
    life, game, found = np.zeros(num_envs), np.zeros(num_envs), {"life": 0, "game": 0}
    between = np.zeros(num_envs, dtype=bool)
    for step in path[1:]:
        actions = np.where(between, 1, rng.integers(0, 6, num_envs))
        _, rewards, over, _, _ = bare.step(actions)
        life, game = life + rewards, game + rewards
        np.testing.assert_array_equal(step[2], np.sign(rewards))
        ended, figures = step[3], step[5].get("episode_figures", {})
        assert bool(figures) == bool(ended.any())
        if figures:
            np.testing.assert_array_equal(figures["_one_life_return"], ended)
            np.testing.assert_array_equal(figures["one_life_return"][ended], life[ended])
            np.testing.assert_array_equal(figures["_game_return"], over)
            np.testing.assert_array_equal(figures["game_return"][over], game[over])
        found["life"] += int(ended.sum())
        found["game"] += int(over.sum())
        between = ended & ~over
        life, game = np.where(ended, 0, life), np.where(over, 0, game)
    assert found["game"] >= 2
    assert found["life"] >= 3 * found["game"]


@pytest.mark.parametrize("what", ["game", "life"])
def test_nothing_ends_in_the_step_between_two_lives(what: str):
    env = make(2).unwrapped
    env.reset(seed=5)
    rng = np.random.default_rng(0)
    while not env.between_lives[0]:
        env.step(rng.integers(0, 6, 2))
    native, step = env._native, env._native.step
    first = np.array([True, False])

    def ending(actions):
        obs, rewards, terminated, truncated, info = step(actions)
        if what == "game":
            return obs, rewards, terminated | first, truncated, info
        return obs, rewards, terminated, truncated, {**info, "lives": info["lives"] - first}

    native.step = ending
    obs, _, terminated, _, infos = env.step(np.zeros(2, dtype=int))
    native.step = step
    assert not terminated.any()
    assert not env.between_lives.any()
    assert infos["lives"][0] == (3 if what == "game" else 1)
    assert not obs[0, :3].any()
    if what == "game":
        assert env.step(np.zeros(2, dtype=int))[4]["lives"][0] == 3
        assert env._game_return[0] == 0


def test_sticky_actions_change_the_game_and_stay_seeded():
    plain, sticky, again = (play(make(1, sticky=s), 60) for s in (0.0, 0.5, 0.5))
    assert (plain[-1][0] != sticky[-1][0]).any()
    np.testing.assert_array_equal(sticky[-1][0], again[-1][0])


def test_breakout_gets_its_ball_at_the_start_of_every_life():
    env = gym.make(ATARI_ID, game="Breakout", noop_max=0)
    lengths, steps = [], 0
    env.reset(seed=0)
    while len(lengths) < 5:
        _, _, over, truncated, info = env.step(0)
        assert not truncated
        steps += 1
        assert steps < 1000, "no ball is in play"
        if over:
            lengths.append(steps)
            steps = 0
            env.reset()
    assert info["episode_figures"]["game_return"] == info["episode_figures"]["one_life_return"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"game": "SpaceInvader"}, "did you mean 'space_invaders'"),
        ({"gaem": "Pong"}, r"gaem is not an argument.*game, sticky"),
        ({"sticky": 2}, "sticky=2"),
        ({"stack": 0}, "stack=0"),
        ({"frame_skip": 2.5}, "frame_skip=2.5"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict, words: str):
    with pytest.raises(ConfigError, match=words):
        gym.make(ATARI_ID, **arguments)


@pytest.mark.parametrize(
    "game", ["SpaceInvaders", "space_invaders", "MsPacman", "Qbert", "UpNDown"]
)
def test_games_have_their_usual_names(game: str):
    gym.make(ATARI_ID, game=game).close()


def test_without_ale_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without_ale(name, *args, **kwargs):
        if name.partition(".")[0] == "ale_py":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.partition(".")[0] == "ale_py"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_ale)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[atari\]"):
        gym.make(ATARI_ID, game=GAME)
