"""Names: algorithms for Tune, environments for RLlib and Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from ray import tune
from ray.rllib.algorithms.algorithm import Algorithm

from rllib_rise import envs
from rllib_rise.envs import bullet
from rllib_rise.rllib.appo import RISEAPPO
from rllib_rise.rllib.dqn import RISEDQN
from rllib_rise.rllib.impala import RISEIMPALA
from rllib_rise.rllib.ppo import RISEPPO
from rllib_rise.rllib.sac import RISESAC

_NATIVE = gym.VectorizeMode.VECTOR_ENTRY_POINT
ALGORITHMS: dict[str, type[Algorithm]] = {
    "RISE-PPO": RISEPPO,
    "RISE-APPO": RISEAPPO,
    "RISE-IMPALA": RISEIMPALA,
    "RISE-DQN": RISEDQN,
    "RISE-SAC": RISESAC,
}


def register() -> None:
    """Make our names known in this process and, through Ray, on all its workers. Idempotent."""
    envs.register()
    for name, algorithm in ALGORITHMS.items():
        tune.register_trainable(name, algorithm, warn=False)
    for env_id in envs.IDS:
        tune.register_env(env_id, _creator(env_id))
    for env_id in bullet.IDS:
        tune.register_env(env_id, _bullet_creator(env_id))


def _creator(env_id: str) -> Any:
    # The `package:id` form imports the package, and so registers the id, wherever it runs.
    name = f"{envs.__name__}:{env_id}"

    def create(config: dict[str, Any]) -> gym.Env | gym.vector.VectorEnv:
        arguments = dict(config)
        # RLlib names a number for gym_env_vectorize_mode="vector_entry_point", and only then.
        num_envs = arguments.pop("num_envs", None)
        if num_envs is None:
            return gym.make(name, **arguments)
        return gym.make_vec(name, num_envs, vectorization_mode=_NATIVE, **arguments)

    return create


def _bullet_creator(env_id: str) -> Any:
    vector = envs.VECTOR_ENTRY_POINTS.get(env_id)

    def create(config: dict[str, Any]) -> gym.Env | gym.vector.VectorEnv:
        arguments = dict(config)
        if vector is None or "num_envs" not in arguments:
            return bullet.make(env_id, **arguments)
        return load_env_creator(vector)(env_id, **arguments)

    return create
