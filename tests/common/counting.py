"""A bonus whose rewards tell how often it was added, and learners that look at them in their loss.

RISE's reward is rounded to sixteenths, and 1/1024 is put on top. With lambda 1 and whole extrinsic
rewards, 1024 times the total, modulo 64, is the number of times that a row got a bonus.
"""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from torch import Tensor

from rllib_rise.bonuses import Transitions
from rllib_rise.bonuses.rise import RISE
from rllib_rise.rllib.appo import RISEAPPOTorchLearner
from rllib_rise.rllib.dqn import RISEDQNTorchLearner
from rllib_rise.rllib.impala import RISEIMPALATorchLearner
from rllib_rise.rllib.ppo import RISEPPOTorchLearner
from rllib_rise.rllib.sac import RISESACTorchLearner

ONE = 1 / 1024
LEAST = 1 / 16  # a larger reward than that of the count alone


class CountingRISE(RISE):
    name = "counting"

    def reward(self, batch: Transitions) -> Tensor:
        return (16 * super().reward(batch)).floor() / 16 + ONE


def additions(rewards: Tensor) -> Tensor:
    return torch.round(rewards.double() / ONE) % 64


class Counts:
    """Logs how often the rows of a loss' batch were rewarded: real ones, and all others."""

    def compute_loss_for_module(self, *, module_id: str, batch: dict[str, Any], **kwargs: Any):
        found = additions(batch[Columns.REWARDS])
        mask = batch.get(Columns.LOSS_MASK, torch.ones_like(found, dtype=torch.bool))
        real, other = found[mask], found[~mask]
        figures = {"rows": (len(real), "max"), "fewest": (real.min(), "min")}
        figures |= {"most": (real.max(), "max")}
        figures["elsewhere"] = (other.max() if len(other) else 0, "max")
        for name, (value, reduce) in figures.items():
            self.metrics.log_value((module_id, f"counted_{name}"), float(value), reduce=reduce)
        return super().compute_loss_for_module(module_id=module_id, batch=batch, **kwargs)


class CountingPPO(Counts, RISEPPOTorchLearner):
    pass


class CountingAPPO(Counts, RISEAPPOTorchLearner):
    pass


class CountingIMPALA(Counts, RISEIMPALATorchLearner):
    pass


class CountingDQN(Counts, RISEDQNTorchLearner):
    pass


class CountingSAC(Counts, RISESACTorchLearner):
    pass


LEARNERS = {
    "PPO": CountingPPO,
    "APPO": CountingAPPO,
    "IMPALA": CountingIMPALA,
    "DQN": CountingDQN,
    "SAC": CountingSAC,
}


def counted(config: Any, algorithm: str) -> Any:
    """The config with the counting bonus; k and other settings of RISE stay."""
    settings = {
        name: value for name, value in config.intrinsic_settings.items() if name != "method"
    }
    config.intrinsic(method="counting:CountingRISE", **{**settings, "lambda_0": 1.0})
    return config.learners(learner_class=LEARNERS[algorithm])


def check_counts(figures: dict[str, Any]) -> None:
    """A loss saw every transition rewarded exactly once, and nothing else rewarded."""
    assert figures["counted_rows"] > 0
    assert figures["counted_fewest"] == figures["counted_most"] == 1
    assert figures["counted_elsewhere"] == 0
    assert figures["intrinsic_reward_max"] > LEAST
