"""Films of episodes, made from real runs."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import envs_for_tests  # noqa: F401 (registers environments)
import numpy as np
import pytest
import torch
from command_line import refused
from envs_for_tests import Countdown
from PIL import Image, ImageSequence
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.tune import register_env
from test_evaluate import save_policy_that_takes

from rllib_rise.bonuses import Transitions, parse_settings, resolve_bonus
from rllib_rise.encoders import load_encoder
from rllib_rise.entropy import kth_neighbor_distance, renyi_reward
from rllib_rise.envs import Maze
from rllib_rise.errors import ConfigError, RunDirectoryError
from rllib_rise.experiments.film import Curve, draw_film, small_frame
from rllib_rise.experiments.play import film_episode, play
from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.experiments.run.train import train
from rllib_rise.experiments.schema import parse_experiment

STEPS = 30
MAZE = {"id": "rise/Maze-v0", "size": 5, "max_steps": STEPS, "terminate_at_goal": False}
RISE = {"method": "rise", "k": 8}
VECTOR = {"fcnet_hiddens": [16]}
IMAGES = {"conv_filters": [[4, 3, 2]]}


def train_run(path: Path, env: dict | str, intrinsic: dict, model: dict) -> Path:
    rllib = {
        "num_env_runners": 0,
        "num_envs_per_env_runner": 2,
        "rollout_fragment_length": 64,
        "train_batch_size_per_learner": 128,
        "minibatch_size": 64,
        "num_epochs": 1,
        "model_config": model,
    }
    data = {"env": env, "stop": {"env_steps": 256}, "rllib": rllib, "intrinsic": intrinsic}
    train(parse_experiment(data), path)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def maze(runs: Path) -> Path:
    return train_run(runs / "maze", MAZE, RISE, VECTOR)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_film_has_a_frame_per_state_and_playing_changes_nothing(maze: Path, tmp_path: Path):
    before, out = contents(maze), tmp_path / "films" / "one.gif"
    result = play(maze, out=out, explore=True)
    assert contents(maze) == before
    assert result["length"] == STEPS
    assert result["file"] == str(out)
    assert not result["cut"]
    with Image.open(out) as film:
        pages = [np.asarray(page.convert("RGB")) for page in ImageSequence.Iterator(film)]
        durations = [page.info["duration"] for page in ImageSequence.Iterator(film)]
    assert len(pages) == STEPS + 1
    assert durations[-1] > durations[0] == 50
    assert all((one != other).any() for one, other in pairwise(pages))
    assert pages[0].shape[0] > pages[0].shape[1] > 300
    assert out.stat().st_size < 200_000


def test_the_bonus_is_that_of_the_method_among_the_episodes_states(maze: Path, tmp_path: Path):
    take = film_episode(maze, explore=True)
    rise = resolve_bonus("rise")
    bonus = rise(parse_settings(rise, {"k": 8}), (2,))
    states = torch.as_tensor(take.episode.get_observations()[:-1])
    expected = bonus.reward(Transitions(obs=states)).numpy()
    np.testing.assert_allclose(take.bonus, expected, rtol=1e-6)
    assert expected.std() > 0
    result = play(maze, out=tmp_path / "film.gif", explore=True)
    assert result["bonus_mean"] == pytest.approx(expected.mean())


def test_the_bonus_has_the_encoder_and_the_k_that_the_run_has_found(runs: Path):
    env = {**MAZE, "observation": "image", "image_size": 15}
    found = {"method": "rise", "warmup_steps": 200, "vae_epochs": 1}
    run = train_run(runs / "fitted", env, found, {"conv_filters": [[8, 3, 2], [8, 3, 2]]})
    take = film_episode(run, explore=True)
    k = json.loads((run / "phase1.json").read_text())["modules"][DEFAULT_MODULE_ID]["k"]
    states = torch.as_tensor(take.episode.get_observations()[:-1])
    embedded = load_encoder(run / "encoder.safetensors", (15, 15, 3))(states)
    expected = renyi_reward(kth_neighbor_distance(embedded, k), alpha=0.1).numpy()
    np.testing.assert_allclose(take.bonus, expected, rtol=1e-4)
    assert expected.std() > 0


def test_frames_show_the_episode(maze: Path):
    take = film_episode(maze, explore=True)
    env = Maze(**{k: v for k, v in MAZE.items() if k != "id"}, render_mode="rgb_array")
    env.reset()
    drawn = [small_frame(env.render())]
    for action in take.episode.get_actions().tolist():
        env.step(action)
        drawn.append(small_frame(env.render()))
    assert take.frames == drawn


def test_the_seed_chooses_the_episode(maze: Path):
    first, same, other = (film_episode(maze, seed=s, explore=True).episode for s in (4, 4, 5))
    assert (first.get_actions() == same.get_actions()).all()
    assert (first.get_actions() != other.get_actions()).any()


def test_the_checkpoints_policy_plays(tmp_path: Path, ray_cluster: None):
    run = save_policy_that_takes(2, tmp_path / "run", "tests/DrawnActionReward-v0")
    result = play(run.path)
    assert (result["return"], result["length"]) == (20, 10)
    assert result["file"] == str(run.path / "play.gif")


def test_a_long_episode_is_cut(maze: Path, tmp_path: Path):
    result = play(maze, out=tmp_path / "cut.gif", max_steps=7)
    assert (result["length"], result["cut"]) == (7, True)
    with Image.open(tmp_path / "cut.gif") as film:
        assert film.n_frames == 8


def test_without_a_bonus_the_curve_is_the_reward(runs: Path):
    run = train_run(runs / "none", MAZE, {"method": "none"}, VECTOR)
    assert film_episode(run).bonus is None
    assert set(play(run)) == {"return", "length", "cut", "file"}


def test_images_that_the_agent_sees_stand_for_those_that_nobody_draws(runs: Path):
    register_env("tests/Countdown", lambda config: Countdown())
    run = train_run(runs / "images", "tests/Countdown", {**RISE, "encoder": "random"}, IMAGES)
    take = film_episode(run)
    assert len(take.frames) == 21
    assert take.bonus is not None
    for step, frame in enumerate(take.frames):
        assert (np.asarray(frame.image()) == step).all()


def test_an_environment_that_cannot_be_shown_is_named(tmp_path: Path, ray_cluster: None):
    run = save_policy_that_takes(1, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"ActionReward-v0.*no images.*draws nothing \(TypeError"):
        play(run.path)


def test_what_cannot_be_played_or_written_is_refused(maze: Path, tmp_path: Path, monkeypatch):
    random = RunDirectory(tmp_path / "random")
    data = {"env": MAZE, "stop": {"env_steps": 128}, "intrinsic": {"method": "random"}}
    random.open(parse_experiment(data).resolved())
    shutil.copytree(maze / "checkpoints", random.checkpoints, dirs_exist_ok=True)
    with pytest.raises(RunDirectoryError, match="acted at random"):
        play(random.path)
    with pytest.raises(ConfigError, match=r"film\.avi: films are \.gif or \.mp4"):
        play(maze, out=tmp_path / "film.avi")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"film\.mp4.*ffmpeg, which is not on the PATH"):
        play(maze, out=tmp_path / "film.mp4")


def test_the_command_names_what_is_no_run(tmp_path: Path, monkeypatch, capsys):
    told = refused(tmp_path, monkeypatch, capsys, "play", "nothing")
    assert "neither a run directory nor a checkpoint" in told


def film_of(values: list[float], path: Path, **options) -> list[np.ndarray]:
    frames = [small_frame(np.full((50, 50), 120, np.uint8)) for _ in range(len(values) + 1)]
    curve = Curve("bonus", np.array(values), "#0072B2", **options)
    draw_film(path, frames, np.zeros(len(values)), curve, lambda share: None)
    with Image.open(path) as film:
        return [np.asarray(page.convert("RGB"), int) for page in ImageSequence.Iterator(film)]


def blue(page: np.ndarray) -> np.ndarray:
    """The columns in which the lower part of a page has the curve's colour."""
    plot = page[-110:]
    return np.flatnonzero((plot[:, :, 2] - plot[:, :, 0] > 100).any(axis=0))


@pytest.mark.parametrize("delay", [0, 1])
def test_the_curve_grows_with_the_episode(tmp_path: Path, delay: int):
    pages = film_of([0.0, 1.0, 0.5, -1.0, 0.2, 0.2], tmp_path / "film.gif", delay=delay)
    ends = [blue(page).max(initial=0) for page in pages]
    assert ends[0] == 0 if delay else ends[0] > 0
    growing = ends if delay else ends[:-1]
    assert (np.diff(growing) > 10).all()
    assert ends[-1] == max(ends)


def test_one_step_and_equal_values_can_be_drawn(tmp_path: Path):
    assert len(film_of([0.3], tmp_path / "one.gif")) == 2
    assert len(film_of([0.0, 0.0, 0.0], tmp_path / "equal.gif")) == 4


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
def test_a_video_is_written_where_there_is_an_encoder(maze: Path, tmp_path: Path):
    import cv2

    play(maze, out=tmp_path / "film.mp4", max_steps=9)
    video = cv2.VideoCapture(str(tmp_path / "film.mp4"))
    assert video.get(cv2.CAP_PROP_FRAME_COUNT) == 10
