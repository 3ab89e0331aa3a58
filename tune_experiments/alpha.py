"""Sweep alpha over seeds on a small maze with Ray Tune.

How to run:
    python tune_experiments/alpha.py [--steps 50000] [--address auto]

What to expect: a table with a row per trial, twelve of them, run side by side on all cores.
"""

from __future__ import annotations

import argparse

import ray
from ray import tune

from rllib_rise import RISEPPOConfig

MODULE = "default_policy"


def sweep(steps: int, alphas: list[float], seeds: list[int], storage: str | None = None):
    """Run every alpha with every seed; returns Tune's results."""
    config = (
        RISEPPOConfig()
        .environment("rise/Maze-v0", env_config={"size": 10, "layout": "loops", "max_steps": 100})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=128, num_epochs=6, lr=3e-4)
        .debugging(seed=tune.grid_search(seeds))
        .rise(alpha=tune.grid_search(alphas), lambda_0=0.1, k=5)
    )
    tuner = tune.Tuner(
        "RISE-PPO",
        param_space=config,
        run_config=tune.RunConfig(
            name="alpha",
            stop={"env_runners/num_env_steps_sampled_lifetime": steps},
            storage_path=storage,
            verbose=1,
        ),
    )
    return tuner.fit()


def main() -> None:
    """Parse arguments, sweep, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--address")
    arguments = parser.parse_args()
    ray.init(address=arguments.address, include_dashboard=False)
    results = sweep(arguments.steps, alphas=[0.0, 0.1, 0.5, 0.9], seeds=[0, 1, 2])
    print(f"{'alpha':>6} {'seed':>5} {'return':>8} {'intrinsic':>10}")
    for result in results:
        alpha, seed = result.config["intrinsic_settings"]["alpha"], result.config["seed"]
        score = result.metrics["env_runners"].get("episode_return_mean", float("nan"))
        bonus = result.metrics["learners"][MODULE]["intrinsic_reward_mean"]
        print(f"{alpha:6.2f} {seed:5d} {score:8.3f} {bonus:10.4f}")


if __name__ == "__main__":
    main()
