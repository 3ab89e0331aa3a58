"""Evaluate a checkpoint: the policy alone, without the bonus."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MAX,
    EPISODE_RETURN_MEAN,
    EPISODE_RETURN_MIN,
    EVALUATION_RESULTS,
)

from rllib_rise.envs.figures import EPISODE_FIGURES
from rllib_rise.errors import ConfigError, RunDirectoryError
from rllib_rise.experiments.run.checkpoints import list_checkpoints, verify, warn_of_strangers
from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.experiments.schema import build_config, parse_experiment


def find_checkpoint(path: Path) -> tuple[RunDirectory, Path]:
    """The run and the checkpoint that `path` means: a run directory, or a checkpoint in it.

    Raises:
        CheckpointError: It is torn; of a run directory, all are.
    """
    path = path.resolve()
    run = RunDirectory(path)
    if run.exists:
        checkpoint = run.latest_checkpoint()
        if checkpoint is None:
            raise RunDirectoryError(f"{path} has no checkpoint yet")
        return run, checkpoint
    if path.name == "algorithm":
        path = path.parent
    run = RunDirectory(path.parent.parent)
    if run.exists and path in list_checkpoints(run.checkpoints):
        verify(path)
        return run, path
    raise RunDirectoryError(
        f"{path} is neither a run directory nor a checkpoint in one "
        "(runs/NAME, or runs/NAME/checkpoints/iteration_NNNNNN)"
    )


def policy_config(run: RunDirectory) -> Any:
    """The config of a run whose policy is to act, all of it in this process."""
    config = build_config(parse_experiment(run.read_config()))
    if config.acts_at_random:
        raise RunDirectoryError(f"{run.path} acted at random: there is no policy")
    # With fewer learners the batch would be smaller, and no longer fit RLlib's other settings.
    config.training(train_batch_size_per_learner=config.total_train_batch_size)
    # Nothing is learned, and a run that had a GPU can be looked at without.
    config.env_runners(num_env_runners=0, num_gpus_per_env_runner=0)
    return config.learners(
        num_learners=0, num_aggregator_actors_per_learner=0, num_gpus_per_learner=0
    )


def evaluate(path: Path, *, episodes: int = 10, explore: bool = False) -> dict[str, Any]:
    """Run `episodes` episodes with a checkpoint's policy; returns are extrinsic.

    Args:
        path: A run directory (its newest checkpoint) or a checkpoint.
        episodes: How many.
        explore: Sample actions instead of taking the most likely ones.
    """
    if episodes < 1:
        raise ConfigError(f"--episodes {episodes} must be at least 1")
    run, checkpoint = find_checkpoint(path)
    config = policy_config(run)
    config.evaluation(
        evaluation_interval=1,
        evaluation_duration=episodes,
        evaluation_duration_unit="episodes",
        evaluation_num_env_runners=0,
        # One after the other: of several at a time, the first to end would be the short ones.
        evaluation_config={"explore": explore, "num_envs_per_env_runner": 1},
    )
    # RLlib averages over the last hundred episodes only.
    config.reporting(metrics_num_episodes_for_smoothing=episodes)
    algorithm = config.build_algo()
    warn_of_strangers(checkpoint)
    try:
        algorithm.restore_from_path(str(checkpoint / "algorithm"))
        results = algorithm.evaluate()
    finally:
        algorithm.stop()
    figures = results.get(EVALUATION_RESULTS, results)[ENV_RUNNER_RESULTS]
    names = {
        "return_mean": EPISODE_RETURN_MEAN,
        "return_min": EPISODE_RETURN_MIN,
        "return_max": EPISODE_RETURN_MAX,
        "length_mean": EPISODE_LEN_MEAN,
    }
    values = {name: float(figures[key]) for name, key in names.items()}
    if not all(math.isfinite(value) for value in values.values()):
        raise RunDirectoryError(f"no episode of {checkpoint} came to an end")
    told = {
        name: total["sum"] / total["count"]
        for name, total in figures.get(EPISODE_FIGURES, {}).items()
        if total["count"]
    }
    return {"checkpoint": str(checkpoint), "episodes": episodes, **values, **told}
