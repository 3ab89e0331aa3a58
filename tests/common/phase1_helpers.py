"""A small experiment with a Phase 1, and how to look at what it did."""

from __future__ import annotations

import torch
from envs_for_tests import TwoAgents
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import DEFAULT_MODULE_ID
from small_algorithms import small_ppo

WARMUP = 300


def config(*, warmup: bool = True, **kwargs):
    settings = {"encoder": "vae", "vae_epochs": 2, "warmup_steps": WARMUP, "k": "auto"}
    return small_ppo(batch=64, **kwargs).rise(**(settings if warmup else {"k": 4}))


def two_agents(*, trained: tuple[str, ...] = ("often", "seldom")):
    """A module per agent, and one that nobody plays."""
    return (
        config()
        .environment(TwoAgents)
        .multi_agent(
            policies={"often", "seldom", "idle"},
            policy_mapping_fn=lambda agent_id, *args, **kwargs: agent_id,
            policies_to_train=list(trained),
        )
    )


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
