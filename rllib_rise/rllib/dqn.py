"""RISE on RLlib's DQN: the paper's off-policy algorithm, for discrete actions."""

from __future__ import annotations

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn import DQN, DQNConfig
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner

from rllib_rise.bonuses import Need
from rllib_rise.rllib.algorithm import IntrinsicAlgorithmMixin
from rllib_rise.rllib.config import IntrinsicConfigMixin
from rllib_rise.rllib.learner import IntrinsicLearnerMixin
from rllib_rise.rllib.modules import DQNModule


class RISEDQNTorchLearner(IntrinsicLearnerMixin, DQNTorchLearner):
    """DQN's learner with an intrinsic reward in its batch."""


class RISEDQNConfig(IntrinsicConfigMixin, DQNConfig):
    """DQN's config with `.rise(...)` and `.intrinsic(...)`."""

    plain_algo_class = DQN
    intrinsic_learner_class = RISEDQNTorchLearner
    module_class = DQNModule
    supplies = frozenset(Need) - {Need.EPISODES, Need.WHOLE_EPISODES, Need.POLICY}

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or RISEDQN)


class RISEDQN(IntrinsicAlgorithmMixin, DQN):
    """DQN with an intrinsic reward; `RISE-DQN` for Tune."""

    @classmethod
    def get_default_config(cls) -> RISEDQNConfig:
        """A config with RISE's defaults."""
        return RISEDQNConfig()
