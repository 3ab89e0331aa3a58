"""RISE on RLlib's PPO: the paper's on-policy algorithm."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO, PPOConfig

from rllib_rise.bonuses import Need
from rllib_rise.rllib.algorithm import IntrinsicAlgorithmMixin
from rllib_rise.rllib.config import IntrinsicConfigMixin
from rllib_rise.rllib.learner import IntrinsicLearnerMixin
from rllib_rise.rllib.modules import PPOModule
from rllib_rise.rllib.ppo_learner import FastPPOTorchLearner


class RISEPPOTorchLearner(IntrinsicLearnerMixin, FastPPOTorchLearner):
    """PPO's learner with an intrinsic reward in its batch."""


class RISEPPOConfig(IntrinsicConfigMixin, PPOConfig):
    """PPO's config with `.rise(...)` and `.intrinsic(...)`.

    Example:
        >>> from rllib_rise import RISEPPOConfig
        >>> config = (
        ...     RISEPPOConfig()
        ...     .environment("rise/Maze-v0", env_config={"size": 10})
        ...     .rise(alpha=0.1, lambda_0=0.1, k=5)
        ... )
        >>> algo = config.build_algo()  # doctest: +SKIP
    """

    plain_algo_class = PPO
    intrinsic_learner_class = RISEPPOTorchLearner
    module_class = PPOModule
    supplies = frozenset(Need)

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or RISEPPO)

    def get_default_learner_class(self) -> Any:
        """Ours with or without a bonus, so that a comparison shows nothing but the bonus."""
        return RISEPPOTorchLearner if self.uses_bonus else FastPPOTorchLearner


class RISEPPO(IntrinsicAlgorithmMixin, PPO):
    """PPO with an intrinsic reward; `RISE-PPO` for Tune."""

    @classmethod
    def get_default_config(cls) -> RISEPPOConfig:
        """A config with RISE's defaults."""
        return RISEPPOConfig()
