"""An environment of your own, with and without RISE.

A diver starts at the left of a sea of 16 x 16 cells and sinks by a row per step, to the left or to
the right. The treasure lies at the bottom right: only sixteen steps to the right get there, and
each of them costs a little. Whoever follows rewards learns to go left; random actions find the
treasure once in 65,000 dives.

How to run:
    python examples/own_environment.py [--steps 50000]

Results to expect: the mean return at the end of each tenth of training, half a minute in all.
Without a bonus it is 0.000, the best of all dives without the treasure. With RISE it comes to
0.990, the treasure less the cost of the way, and stays about there. Then all dives are the same,
and RISE warns that it has nothing left to pay for.
"""

import argparse

import gymnasium as gym
import numpy as np

from rllib_rise import RISEPPOConfig

SIZE = 16


class Dive(gym.Env):
    """Sink by a row per step, to the left (0) or to the right (1)."""

    observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.row = self.column = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row = self.column = 0
        return self._place(), {}

    def step(self, action):
        self.row += 1
        self.column = max(self.column + (1 if action == 1 else -1), 0)
        reward = -0.01 / SIZE if action == 1 else 0.0
        found = self.column == SIZE
        return self._place(), reward + found, self.row == SIZE, False, {}

    def _place(self):
        return np.array([self.row / SIZE, self.column / SIZE], np.float32)


def train(method, steps):
    """The mean return of dives at the end of each tenth of training."""
    config = (
        RISEPPOConfig()
        .environment(Dive)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=128, num_epochs=6, lr=3e-4)
        .debugging(seed=1, log_level="ERROR")
        .intrinsic(method=method)
    )
    if method == "rise":
        config.rise(alpha=0.1, lambda_0=0.02, k=5)
    algo, returns = config.build_algo(), []
    for part in range(1, 11):
        sampled = 0
        while sampled < steps * part / 10:
            result = algo.train()["env_runners"]
            sampled = result["num_env_steps_sampled_lifetime"]
        returns.append(result["episode_return_mean"])
    algo.stop()
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    steps = parser.parse_args().steps
    for method in ("none", "rise"):
        print(f"{method:>5}", *(f"{value:6.3f}" for value in train(method, steps)))
