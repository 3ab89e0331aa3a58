"""A script as RLlib's users have them: a module, a connector and callbacks of their own.

The test adds one line to it.
"""

import gymnasium as gym
import numpy as np
import torch
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn


class Networks(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        size = int(np.prod(self.observation_space.shape))
        self.policy = nn.Sequential(nn.Linear(size, 32), nn.Tanh(), nn.Linear(32, 2))
        self.value = nn.Sequential(nn.Linear(size, 32), nn.Tanh(), nn.Linear(32, 1))

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.policy(batch[Columns.OBS])}

    def compute_values(self, batch, embeddings=None):
        return self.value(batch[Columns.OBS]).squeeze(-1)


class Angles(RLlibCallback):
    def on_episode_step(self, *, episode, metrics_logger, **kwargs):
        metrics_logger.log_value(
            "largest_angle", abs(episode.get_observations(-1)[2]), reduce="max"
        )


class Steps(gym.Wrapper):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs.astype(np.float32), float(reward), terminated, truncated, info


def make(env_config):
    return Steps(gym.make("CartPole-v1"))


tune.register_env("cart", make)
config = (
    PPOConfig()
    .environment("cart")
    .env_runners(
        num_env_runners=1,
        env_to_module_connector=lambda env, spaces, device: MeanStdFilter(),
    )
    .training(train_batch_size_per_learner=256, minibatch_size=128, num_epochs=2, lr=1e-3)
    .rl_module(rl_module_spec=RLModuleSpec(module_class=Networks))
    .callbacks(Angles)
    .debugging(seed=1)
)
# with_rise goes here
torch.set_num_threads(1)
algorithm = config.build_algo()
for _ in range(3):
    result = algorithm.train()
print("return", result["env_runners"]["episode_return_mean"])
print("largest angle", result["env_runners"]["largest_angle"])
print("module", type(algorithm.get_module()).__name__)
print("bonus", result["learners"]["default_policy"].get("intrinsic_reward_mean"))
algorithm.stop()
