"""Things that go wrong as long as the file exists that the variable RISE_TEST_FAULT names."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rllib_rise.bonuses import RISE
from rllib_rise.entropy import faiss_search
from rllib_rise.rllib.ppo import RISEPPOTorchLearner

VARIABLE = "RISE_TEST_FAULT"
_HEALTHY_STEPS = 300


def faulty() -> bool:
    return Path(os.environ[VARIABLE]).exists()


def chosen() -> bool:
    """Whether this process was the first to ask."""
    path = Path(os.environ[VARIABLE]).with_suffix(".chosen")
    with contextlib.suppress(FileExistsError), path.open("x") as stream:
        stream.write(str(os.getpid()))
    return path.read_text() == str(os.getpid())


class Walk(gym.Env):
    """A random walk for 20 steps; after a while it raises, or hangs, in one process or in all."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str = "none") -> None:
        self.fault, self.all_steps = fault, 0
        if fault == "cannot be made" and faulty():
            raise ValueError("the simulator is not installed")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.steps, self.place = 0, np.zeros(2, np.float32)
        return self.place, {}

    def step(self, action):
        self.steps += 1
        self.all_steps += 1
        if self.fault == "raises at once" and faulty():
            raise ValueError("the simulator has no licence")
        while self.fault == "hangs at once" and faulty():
            time.sleep(1.0)
        if self.all_steps > _HEALTHY_STEPS and faulty():
            if self.fault == "raises":
                raise ValueError("the simulator has lost its licence")
            while self.fault == "hangs" or (self.fault == "hangs on one" and chosen()):
                time.sleep(1.0)
        self.place = self.place + self.np_random.normal(size=2).astype(np.float32)
        return self.place, 1.0, self.steps >= 20, False, {}

    def exploration_statistics(self) -> dict[str, Any]:
        """As the maze has them: a run asks for them after every iteration."""
        return {
            "visit_counts": np.array([[self.all_steps]]),
            "reachable": np.array([[True]]),
            "goals_reached": 0,
            "first_goal_step": None,
            "steps": self.all_steps,
        }


gym.register("faults/Walk-v0", Walk)


class FailingFit(RISE):
    def fit(self, obs):
        if faulty():
            raise RuntimeError("out of memory")
        return (yield from super().fit(obs))


class FailingFaiss(RISE):
    """FAISS fails from the fifth batch on."""

    batches = 0

    def reward(self, batch):
        self.batches += 1
        faiss = faiss_search.load_faiss()
        distances = faiss.fvec_L2sqr_by_idx
        if self.batches > 4 and faulty():
            faiss.fvec_L2sqr_by_idx = _raise
        try:
            return super().reward(batch)
        finally:
            faiss.fvec_L2sqr_by_idx = distances


def _raise(*arguments: object) -> None:
    raise RuntimeError("Error in void fvec_L2sqr_by_idx(): no more room")


class NaNLoss(RISEPPOTorchLearner):
    """The loss is NaN from the fifth update on."""

    updates = 0

    def before_gradient_based_update(self, **kwargs):
        self.updates += 1
        super().before_gradient_based_update(**kwargs)

    def compute_loss_for_module(self, **kwargs):
        loss = super().compute_loss_for_module(**kwargs)
        return loss * torch.nan if self.updates > 4 and faulty() else loss
