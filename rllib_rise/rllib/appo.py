"""RISE on RLlib's APPO."""

from __future__ import annotations

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.appo import APPO, APPOConfig
from ray.rllib.algorithms.appo.torch.appo_torch_learner import APPOTorchLearner

from rllib_rise.bonuses import Need
from rllib_rise.rllib.algorithm import IntrinsicAlgorithmMixin
from rllib_rise.rllib.config import IntrinsicConfigMixin
from rllib_rise.rllib.learner import IntrinsicLearnerMixin
from rllib_rise.rllib.modules import APPOModule


class RISEAPPOTorchLearner(IntrinsicLearnerMixin, APPOTorchLearner):
    """APPO's learner with an intrinsic reward in its batch."""


class RISEAPPOConfig(IntrinsicConfigMixin, APPOConfig):
    """APPO's config with `.rise(...)` and `.intrinsic(...)`."""

    plain_algo_class = APPO
    intrinsic_learner_class = RISEAPPOTorchLearner
    module_class = APPOModule
    supplies = frozenset(Need)
    asynchronous = True

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or RISEAPPO)


class RISEAPPO(IntrinsicAlgorithmMixin, APPO):
    """APPO with an intrinsic reward; `RISE-APPO` for Tune."""

    @classmethod
    def get_default_config(cls) -> RISEAPPOConfig:
        """A config with RISE's defaults."""
        return RISEAPPOConfig()
