"""Names: algorithms for Tune, environments for RLlib and Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from ray import tune

from rllib_rise import envs
from rllib_rise.rllib.ppo import RISEPPO

ALGORITHMS = {"RISE-PPO": RISEPPO}


def register() -> None:
    """Make our names known in this process and, through Ray, on all its workers. Idempotent."""
    envs.register()
    for name, algorithm in ALGORITHMS.items():
        tune.register_trainable(name, algorithm, warn=False)
    for env_id in envs.IDS:
        tune.register_env(env_id, _creator(env_id))


def _creator(env_id: str) -> Any:
    # The `package:id` form imports the package, and so registers the id, wherever it runs.
    return lambda config: gym.make(f"{envs.__name__}:{env_id}", **config)
