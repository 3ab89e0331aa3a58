"""One episode of a trained policy as an animated picture, with its bonus below."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.debug.deterministic import update_global_seed_if_necessary
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME

from rllib_rise.encoders.base import image_layout, is_image
from rllib_rise.envs.figures import EPISODE_FIGURES
from rllib_rise.errors import ConfigError
from rllib_rise.experiments.evaluate import find_checkpoint, policy_config
from rllib_rise.experiments.film import Curve, Frame, check_film, draw_film, small_frame
from rllib_rise.experiments.report.canvas import method_colors
from rllib_rise.experiments.run.checkpoints import warn_of_strangers
from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.rllib.episode_bonus import episode_bonus

MAX_STEPS = 1000
"""Steps after which an episode is cut, if nothing else is said."""

OnProgress = Callable[[str, float | None], None]


def _silent(line: str, share: float | None) -> None:
    pass


@dataclass(frozen=True)
class Take:
    """An episode that was filmed.

    Attributes:
        episode: What happened.
        frames: One before each of its steps, and one behind the last.
        bonus: r_hat of each step, `[T]`; None for the method `none`.
        method: The run's.
        cut: Whether it would have gone on.
    """

    episode: SingleAgentEpisode
    frames: list[Frame]
    bonus: NDArray[np.float64] | None
    method: str
    cut: bool

    @property
    def rewards(self) -> NDArray[np.float64]:
        """The environment's own, `[T]`."""
        return np.asarray(self.episode.get_rewards(), dtype=np.float64)


def play(
    path: Path,
    *,
    out: Path | None = None,
    seed: int | None = None,
    explore: bool = False,
    max_steps: int = MAX_STEPS,
    on_progress: OnProgress = _silent,
) -> dict[str, Any]:
    """Film one episode with a checkpoint's policy; returns are extrinsic.

    Args:
        path: A run directory (its newest checkpoint) or a checkpoint.
        out: A .gif or .mp4 file; by default `play.gif` in the run directory.
        seed: Of the environment and of what is sampled; by default the run's.
        explore: Sample actions instead of taking the most likely ones.
        max_steps: Cut the episode after so many.
        on_progress: Called with what is being done, and the share of it that is.
    """
    run, _ = find_checkpoint(path)
    out = out or run.path / "play.gif"
    check_film(out)
    take = film_episode(
        path, seed=seed, explore=explore, max_steps=max_steps, on_progress=on_progress
    )
    draw_film(
        out,
        take.frames,
        take.rewards,
        _curve(take),
        lambda share: on_progress(f"drawing {out.name}: {share:.0%}", share),
    )
    figures = take.episode.get_infos(-1).get(EPISODE_FIGURES, {})
    bonus = {} if take.bonus is None else {"bonus_mean": float(take.bonus.mean())}
    return {
        "return": float(take.rewards.sum()),
        "length": len(take.episode),
        **bonus,
        **{name: float(value) for name, value in figures.items()},
        "cut": take.cut,
        "file": str(out),
    }


def _curve(take: Take) -> Curve:
    color = method_colors([take.method])[take.method]
    if take.bonus is None:
        # What a step has earned is known in the frame behind it.
        return Curve("reward", take.rewards, color, delay=1)
    return Curve(f"bonus of {take.method}", take.bonus, color)


def film_episode(
    path: Path,
    *,
    seed: int | None = None,
    explore: bool = False,
    max_steps: int = MAX_STEPS,
    on_progress: OnProgress = _silent,
) -> Take:
    """One episode with a checkpoint's policy, its frames and its bonus; see `play`."""
    if max_steps < 1:
        raise ConfigError(f"--max-steps {max_steps} must be at least 1")
    run, checkpoint = find_checkpoint(path)
    config = policy_config(run)
    if config.is_multi_agent:
        raise ConfigError(f"{run.path} has several agents: a film can show the bonus of one only")
    config.env_runners(num_envs_per_env_runner=1)
    on_progress("restoring the policy", None)
    warn_of_strangers(checkpoint)
    algorithm = config.build_algo()
    try:
        algorithm.restore_from_path(str(checkpoint / "algorithm"))
        camera = _Camera(
            run, max_steps, lambda steps: on_progress(f"playing: step {steps:,}", None)
        )
        episode = camera.film(algorithm, config.seed if seed is None else seed, explore)
        bonus = None
        if config.uses_bonus:
            on_progress("computing the bonus", None)
            learner = algorithm.learner_group._learner
            bonus = episode_bonus(learner, episode).cpu().double().numpy()
    finally:
        algorithm.stop()
    method = config.intrinsic_settings["method"]
    return Take(episode, camera.frames, bonus, method, cut=not episode.is_done)


class _Cut(Exception):
    """The episode is longer than it may be."""


class _Camera:
    """Takes a picture after the reset and after every step."""

    def __init__(self, run: RunDirectory, max_steps: int, on_step: Callable[[int], None]) -> None:
        self._run, self._max_steps, self._on_step = run, max_steps, on_step
        self._renders, self._why_not = True, "render() returned nothing"
        self.frames: list[Frame] = []

    def film(self, algorithm: Algorithm, seed: int, explore: bool) -> SingleAgentEpisode:
        """Let the algorithm's own env runner play one episode."""
        runner: Any = algorithm.env_runner
        # Pygame opens screen and sound card too, and complains where there are none.
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        self._make_env(runner)
        runner.config.callbacks(on_episode_start=self._start, on_episode_step=self._step)
        runner._seed = seed
        update_global_seed_if_necessary("torch", seed)
        # Exploration may fade with the steps that were taken.
        runner.num_env_steps_sampled_lifetime = algorithm.metrics.peek(
            (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0
        )
        with contextlib.suppress(_Cut):
            runner.sample(num_episodes=1, explore=explore)
        return self._episode if self._episode.is_numpy else self._episode.to_numpy()

    def _make_env(self, runner: Any) -> None:
        """An environment that can be rendered; where there is none, the one that was trained in."""
        arguments = dict(runner.config.env_config)
        try:
            runner.config.env_config = {**arguments, "render_mode": "rgb_array"}
            runner.make_env()
        except Exception as error:  # whatever it makes of an argument that it does not know
            self._renders, self._why_not = False, _reason(error)
            runner.config.env_config = arguments
            runner.make_env()

    def _start(self, *, episode: Any, env: gym.vector.VectorEnv, **kwargs: Any) -> None:
        self.frames.clear()
        self._step(episode=episode, env=env)

    def _step(self, *, episode: Any, env: gym.vector.VectorEnv, **kwargs: Any) -> None:
        self._episode: SingleAgentEpisode = episode
        self.frames.append(small_frame(self._picture(episode, env)))
        self._on_step(len(episode))
        if len(episode) >= self._max_steps and not episode.is_done:
            raise _Cut

    def _picture(self, episode: Any, env: gym.vector.VectorEnv) -> NDArray[Any]:
        """What the environment draws; where it does not, what the agent sees."""
        if self._renders:
            try:
                drawn: Any = env.render()
            except Exception as error:  # a library for drawing is missing, say
                drawn, self._why_not = None, _reason(error)
            if drawn is not None and drawn[0] is not None:
                return np.asarray(drawn[0])
            self._renders = False
        obs = episode.get_observations(-1)
        if not isinstance(obs, np.ndarray) or not is_image(obs.shape):
            env_id = self._run.read_config()["env"]["id"]
            raise ConfigError(
                f"env.id={env_id!r} cannot be filmed: its observations are no images, and with "
                f"render_mode='rgb_array' it draws nothing ({self._why_not})"
            )
        return _visible(obs, env.single_observation_space)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _visible(obs: NDArray[Any], space: Any) -> NDArray[np.uint8]:
    """An image observation in bytes, `[H, W, 3]` or `[H, W]`; of stacked frames the newest."""
    image = np.moveaxis(obs, 0, 2) if image_layout(obs.shape).channels_first else obs
    image = image if image.shape[2] == 3 else image[:, :, -1]
    if image.dtype == np.uint8:
        return image
    bounded = np.isfinite([space.low.min(), space.high.max()]).all()
    low, high = (space.low.min(), space.high.max()) if bounded else (0.0, 1.0)
    share = np.nan_to_num((image - low) / (high - low))
    return np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8)
