"""Learners that keep what their loss was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from torch import Tensor

from rllib_rise.rllib.dqn import RISEDQNTorchLearner
from rllib_rise.rllib.ppo import RISEPPOTorchLearner


class Keeps:
    def compute_loss_for_module(self, *, module_id: str, batch: dict[str, Any], **kwargs: Any):
        rewards = batch[Columns.REWARDS]
        mask = batch.get(Columns.LOSS_MASK, torch.ones_like(rewards, dtype=torch.bool))
        rows = (batch[Columns.OBS][mask].clone(), rewards[mask].clone())
        self.__dict__.setdefault("kept", []).append(rows)
        return super().compute_loss_for_module(module_id=module_id, batch=batch, **kwargs)


class KeepingPPO(Keeps, RISEPPOTorchLearner):
    pass


class KeepingDQN(Keeps, RISEDQNTorchLearner):
    pass


LEARNERS = {"PPO": KeepingPPO, "DQN": KeepingDQN}


def take(algorithm: Any) -> tuple[Tensor, Tensor]:
    """Observations and rewards that all learners' losses saw since the last call, in one order."""

    def kept(learner: Any) -> Any:
        return learner.__dict__.pop("kept", [])

    found = algorithm.learner_group.foreach_learner(kept)
    parts = [part for result in found for part in result.get()]
    obs, rewards = (torch.cat(column) for column in zip(*parts, strict=True))
    order = torch.from_numpy(np.lexsort((rewards, obs[:, 0])))  # all episodes start in one place
    return obs[order], rewards[order]
