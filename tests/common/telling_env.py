"""An environment that tells figures about its episodes; a module that Ray's workers can import."""

from __future__ import annotations

from envs_for_tests import ConstantReward


class Telling(ConstantReward):
    """Tells the length of each episode: 20 steps, but 4 on the second env runner."""

    def __init__(self, config=None) -> None:
        super().__init__()
        self.early = getattr(config, "worker_index", 0) == 2

    def step(self, action):
        obs, reward, over, truncated, info = super().step(action)
        over = over or (self.early and self.steps >= 4)
        if over:
            info["episode_figures"] = {"length": self.steps, "even": self.steps % 2 == 0}
        return obs, reward, over, truncated, info
