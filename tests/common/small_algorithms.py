"""Algorithms that are small enough to be built in every test."""

from __future__ import annotations

from typing import Any

from envs_for_tests import ConstantReward, ContinuousReward

from rllib_rise import RISEPPOConfig
from rllib_rise.rllib.registration import ALGORITHMS

NAMES = tuple(name.removeprefix("RISE-") for name in ALGORITHMS)
ASYNCHRONOUS = ("APPO", "IMPALA")
OFF_POLICY = ("DQN", "SAC")


def small(
    algorithm: str,
    env: Any = None,
    *,
    runners: int = 0,
    learners: int = 0,
    aggregators: int = 0,
    batch: int = 64,
    **env_config: Any,
) -> Any:
    """One update per iteration, give or take, with a bonus and without a Phase 1."""
    default = ContinuousReward if algorithm == "SAC" else ConstantReward
    config = (
        ALGORITHMS[f"RISE-{algorithm}"]
        .get_default_config()
        .environment(default if env is None else env, env_config=env_config)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=2)
        .learners(num_learners=learners, num_aggregator_actors_per_learner=aggregators)
        .training(train_batch_size_per_learner=batch)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .reporting(
            min_time_s_per_iteration=0,
            min_sample_timesteps_per_iteration=0,
            min_train_timesteps_per_iteration=0,
        )
        .debugging(seed=3)
        .rise(k=5)
    )
    if algorithm == "PPO":
        config.training(minibatch_size=batch // 2, num_epochs=1)
    if algorithm in ASYNCHRONOUS:
        config.env_runners(rollout_fragment_length=16)
        # Learners tell their figures, and give their weights, at every so many updates.
        config.training(broadcast_interval=1)
        if runners:  # time for them to send something
            config.reporting(min_time_s_per_iteration=0.3)
    if algorithm in OFF_POLICY:
        config.env_runners(rollout_fragment_length=8)
        config.training(
            num_steps_sampled_before_learning_starts=batch,
            replay_buffer_config={**config.replay_buffer_config, "capacity": 2000},
        )
    return config


def small_ppo(
    env=ConstantReward, *, runners: int = 0, learners: int = 0, batch: int = 128, **env_config
) -> RISEPPOConfig:
    return (
        RISEPPOConfig()
        .environment(env, env_config=env_config)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=2)
        .learners(num_learners=learners)
        .training(train_batch_size_per_learner=batch, minibatch_size=batch // 2, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .debugging(seed=3)
    )
