"""A small experiment with a Phase 1, and how to look at what it did."""

from __future__ import annotations

import torch
from envs_for_tests import ConstantReward
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import DEFAULT_MODULE_ID

from rllib_rise import RISEPPOConfig

WARMUP = 300


def config(*, runners: int = 0, learners: int = 0, warmup: bool = True, **env_config):
    cfg = (
        RISEPPOConfig()
        .environment(ConstantReward, env_config=env_config)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=2)
        .learners(num_learners=learners)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .debugging(seed=3)
    )
    settings = {"encoder": "vae", "vae_epochs": 2, "warmup_steps": WARMUP, "k": "auto"}
    return cfg.rise(**(settings if warmup else {"k": 4}))


def states(algorithm: Algorithm) -> list[dict]:
    found = algorithm.learner_group.foreach_learner(lambda learner: learner.intrinsic.get_state())
    return [result.get() for result in found]


def assert_same(one: dict, other: dict) -> None:
    assert one["clock"] == other["clock"]
    assert one["warmup_env_steps"] == other["warmup_env_steps"]
    assert one["tensors"].keys() == other["tensors"].keys()
    for name, tensor in one["tensors"].items():
        assert torch.equal(tensor, other["tensors"][name]), name


COUNTERS = (
    "num_env_steps_sampled",
    "num_env_steps_sampled_lifetime",
    "num_episodes",
    "num_episodes_lifetime",
    "num_module_steps_sampled",
    "episode_return_mean",
    "episode_return_max",
    "episode_len_mean",
)


def trace(algorithm: Algorithm, iterations: int = 2) -> list[dict]:
    """What RLlib counts and reports, and the observations that training saw."""
    seen = []
    for _ in range(iterations):
        result = algorithm.train()
        row = {name: result["env_runners"].get(name) for name in COUNTERS}
        row["timesteps"] = result["num_env_steps_sampled_lifetime"]
        row["iteration"] = result["training_iteration"]
        row["lambda"] = result["learners"][DEFAULT_MODULE_ID]["intrinsic_lambda"]
        seen.append(row)
    return seen


def keep_observations(algorithm: Algorithm) -> list[torch.Tensor]:
    """A list that the observations of Phase 1 will be added to (local learner)."""
    kept: list[torch.Tensor] = []
    for bonus in algorithm.learner_group._learner.intrinsic.bonuses.values():

        def keeping(obs: torch.Tensor, fit=bonus.fit):
            kept.append(obs.clone())
            return fit(obs)

        bonus.fit = keeping
    return kept
