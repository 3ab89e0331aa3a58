"""Processes of a group as learners are, without the learners."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import ray
import torch
import torch.distributed as dist
from ray.rllib.core.columns import Columns

from rllib_rise.bonuses import Bonus, BonusSettings, Need
from rllib_rise.bonuses.rise import RISE
from rllib_rise.rllib.gather import gather_rows
from rllib_rise.rllib.runtime import IntrinsicRuntime


class Counter(Bonus):
    """Rewards a transition by the number of those before it, and by what it needs of them."""

    name = "counter"

    def __init__(self, settings, obs_shape, *, seed=0, action_space=None):
        super().__init__(settings, obs_shape, seed=seed)
        self.register_buffer("seen", torch.zeros(()))

    @classmethod
    def needs(cls, settings):
        return frozenset({Need.NEXT_OBS, Need.ACTIONS, Need.EPISODES})

    def reward(self, batch):
        assert len(batch.next_obs) == len(batch.actions) == len(batch)
        return self.seen + len(batch.episodes.unique()) + torch.zeros(len(batch))

    def update(self, batch):
        self.seen += len(batch)


@ray.remote(num_cpus=0.5)
class Peer:
    """A process of a gloo group, with a runtime as a learner has it."""

    def __init__(self, rank: int, port: int) -> None:
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
        self.rank = rank

    def gather(self, rows):
        everyone, own = gather_rows(rows)
        return everyone, (own.start, own.stop)

    def apply(self, bonus_class, batches: list[dict]) -> list:
        settings = bonus_class.Settings(k=2) if bonus_class is RISE else BonusSettings()
        runtime = IntrinsicRuntime(bonus_class, settings, gather=gather_rows)
        for module_id in ("a", "b"):
            runtime.add_module(module_id, gym.spaces.Box(-1, 1, (2,), np.float32))
        rl_module = {name: self for name in ("a", "b")}
        for batch in batches:
            runtime.apply_all(batch, rl_module, None)
        tensors = runtime.get_state()["tensors"]
        return [{key: part[Columns.REWARDS] for key, part in b.items()} for b in batches], tensors

    def unwrapped(self):
        return None
