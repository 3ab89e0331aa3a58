"""A PPO that is small enough to be built in every test."""

from __future__ import annotations

from envs_for_tests import ConstantReward

from rllib_rise import RISEPPOConfig


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
