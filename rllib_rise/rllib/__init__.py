"""The glue to Ray RLlib's new API stack: configs, learners, connector, Phase 1, checkpoints.

Importing it makes `RISE-PPO` known to Tune, and our environments to RLlib.
"""

from rllib_rise.rllib.ppo import RISEPPO, RISEPPOConfig, RISEPPOTorchLearner
from rllib_rise.rllib.registration import register

register()

__all__ = ["RISEPPO", "RISEPPOConfig", "RISEPPOTorchLearner", "register"]
