"""RISE on RLlib's SAC: the paper's off-policy algorithm, for continuous actions."""

from __future__ import annotations

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.sac import SAC, SACConfig
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner

from rllib_rise.bonuses import Need
from rllib_rise.rllib.algorithm import IntrinsicAlgorithmMixin
from rllib_rise.rllib.config import IntrinsicConfigMixin
from rllib_rise.rllib.learner import IntrinsicLearnerMixin
from rllib_rise.rllib.modules import SACModule


class RISESACTorchLearner(IntrinsicLearnerMixin, SACTorchLearner):
    """SAC's learner with an intrinsic reward in its batch."""


class RISESACConfig(IntrinsicConfigMixin, SACConfig):
    """SAC's config with `.rise(...)` and `.intrinsic(...)`."""

    plain_algo_class = SAC
    intrinsic_learner_class = RISESACTorchLearner
    module_class = SACModule
    supplies = frozenset(Need) - {Need.EPISODES, Need.WHOLE_EPISODES, Need.POLICY}

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or RISESAC)


class RISESAC(IntrinsicAlgorithmMixin, SAC):
    """SAC with an intrinsic reward; `RISE-SAC` for Tune."""

    @classmethod
    def get_default_config(cls) -> RISESACConfig:
        """A config with RISE's defaults."""
        return RISESACConfig()
