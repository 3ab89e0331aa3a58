"""A script of RLlib's that you have already, and one line more.

PPO on MountainCar, with a connector and a callback of the script's own. The car is paid -1 per step
until it is on the hill, and random actions do not get it there.

How to run:
    python examples/rllib_script.py [--plain] [--steps 150000]

Results to expect: a line for every tenth of training, two minutes in all. With the bonus the car
arrives in most episodes from 30,000 steps on; returns, which are the environment's alone, leave
-200. With --plain it took twice as many steps to arrive at all; this is one seed of each.
"""

import argparse

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.env_to_module import MeanStdFilter

import rllib_rise


class Arrivals(RLlibCallback):
    """The share of episodes that end on the hill."""

    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        metrics_logger.log_value("arrived", float(episode.is_terminated), window=100)


parser = argparse.ArgumentParser()
parser.add_argument("--plain", action="store_true")
parser.add_argument("--steps", type=int, default=150_000)
arguments = parser.parse_args()

config = (
    PPOConfig()
    .environment("MountainCar-v0")
    .env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=8,
        env_to_module_connector=lambda env, spaces, device: MeanStdFilter(),
    )
    .training(train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=8, lr=5e-4)
    .callbacks(Arrivals)
    .debugging(seed=1, log_level="ERROR")
)

if not arguments.plain:
    config = rllib_rise.with_rise(config, alpha=0.1, lambda_0=1.0, k=5)

algo = config.build_algo()
for part in range(1, 11):
    sampled = 0
    while sampled < arguments.steps * part / 10:
        result = algo.train()["env_runners"]
        sampled = result["num_env_steps_sampled_lifetime"]
    print(
        f"{sampled:>9,.0f} steps   return {result['episode_return_mean']:7.1f}"
        f"   arrived {result['arrived']:.2f}"
    )
algo.stop()
