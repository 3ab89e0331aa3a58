"""RISE on RLlib's IMPALA."""

from __future__ import annotations

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.impala import IMPALA, IMPALAConfig
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner

from rllib_rise.bonuses import Need
from rllib_rise.rllib.algorithm import IntrinsicAlgorithmMixin
from rllib_rise.rllib.config import IntrinsicConfigMixin
from rllib_rise.rllib.learner import IntrinsicLearnerMixin
from rllib_rise.rllib.modules import PPOModule


class RISEIMPALATorchLearner(IntrinsicLearnerMixin, IMPALATorchLearner):
    """IMPALA's learner with an intrinsic reward in its batch."""


class RISEIMPALAConfig(IntrinsicConfigMixin, IMPALAConfig):
    """IMPALA's config with `.rise(...)` and `.intrinsic(...)`."""

    plain_algo_class = IMPALA
    intrinsic_learner_class = RISEIMPALATorchLearner
    module_class = PPOModule
    supplies = frozenset(Need)
    asynchronous = True

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or RISEIMPALA)


class RISEIMPALA(IntrinsicAlgorithmMixin, IMPALA):
    """IMPALA with an intrinsic reward; `RISE-IMPALA` for Tune."""

    @classmethod
    def get_default_config(cls) -> RISEIMPALAConfig:
        """A config with RISE's defaults."""
        return RISEIMPALAConfig()
