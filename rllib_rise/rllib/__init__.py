"""The glue to Ray RLlib's new API stack: configs, learners, connector, Phase 1, checkpoints.

Importing it makes `RISE-PPO` and the others known to Tune, and our environments to RLlib.
"""

from rllib_rise.rllib.appo import RISEAPPO, RISEAPPOConfig, RISEAPPOTorchLearner
from rllib_rise.rllib.conversion import with_rise
from rllib_rise.rllib.dqn import RISEDQN, RISEDQNConfig, RISEDQNTorchLearner
from rllib_rise.rllib.impala import RISEIMPALA, RISEIMPALAConfig, RISEIMPALATorchLearner
from rllib_rise.rllib.ppo import RISEPPO, RISEPPOConfig, RISEPPOTorchLearner
from rllib_rise.rllib.registration import register
from rllib_rise.rllib.sac import RISESAC, RISESACConfig, RISESACTorchLearner

register()

__all__ = [
    "RISEAPPO",
    "RISEDQN",
    "RISEIMPALA",
    "RISEPPO",
    "RISESAC",
    "RISEAPPOConfig",
    "RISEAPPOTorchLearner",
    "RISEDQNConfig",
    "RISEDQNTorchLearner",
    "RISEIMPALAConfig",
    "RISEIMPALATorchLearner",
    "RISEPPOConfig",
    "RISEPPOTorchLearner",
    "RISESACConfig",
    "RISESACTorchLearner",
    "register",
    "with_rise",
]
