"""PyBullet's robots, through the package pybullet-envs-gymnasium, under its own ids."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium as gym

from rllib_rise.errors import MissingExtraError

IDS = (
    "AntBulletEnv-v0",
    "HalfCheetahBulletEnv-v0",
    "HopperBulletEnv-v0",
    "HumanoidBulletEnv-v0",
    "HumanoidFlagrunBulletEnv-v0",
    "HumanoidFlagrunHarderBulletEnv-v0",
    "InvertedDoublePendulumBulletEnv-v0",
    "InvertedPendulumBulletEnv-v0",
    "InvertedPendulumSwingupBulletEnv-v0",
    "PusherBulletEnv-v0",
    "ReacherBulletEnv-v0",
    "ThrowerBulletEnv-v0",
    "Walker2DBulletEnv-v0",
)
"""The ids that the package registers with Gymnasium, known here without importing it."""


def load() -> None:
    """Make the ids known to Gymnasium.

    Raises:
        MissingExtraError: If pybullet or pybullet-envs-gymnasium is not installed.
    """
    try:
        with _quiet():
            import pybullet  # noqa: F401 (the other one imports it when it makes a robot)
            import pybullet_envs_gymnasium  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "the Bullet environments need pybullet and pybullet-envs-gymnasium; "
            "in the repository: pip install -c constraints.txt -e '.[bullet]'"
        ) from error


def make(env_id: str, **arguments: Any) -> gym.Env:
    """A robot, made in silence."""
    load()
    env = gym.make(env_id, **arguments)
    # The first reset connects to the simulation, which prints a line for each environment.
    with _quiet():
        env.reset()
    return env


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what C code prints; Python's own streams are flushed first and lose nothing."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(stream) for stream in (1, 2)]
    try:
        with open(os.devnull, "wb") as sink:
            for stream in (1, 2):
                os.dup2(sink.fileno(), stream)
            yield
    finally:
        for stream, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
