"""The numbers of a training iteration that a run keeps."""

from __future__ import annotations

import math
from typing import Any

from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_MODULE_STEPS_TRAINED,
)

from rllib_rise.bonuses.registry import WITHOUT_BONUS, resolve_bonus
from rllib_rise.envs.figures import EPISODE_FIGURES
from rllib_rise.experiments.schema import Experiment

Row = dict[str, float]

COLUMNS = {
    "iteration": "counted from 1",
    "env_steps": "environment steps so far, those of Phase 1 included",
    "seconds": "wall-clock time so far, Phase 1 included",
    "steps_per_second": "environment steps per second in this iteration",
    "episode_return_mean": "mean return, of the environment's rewards alone, over the last "
    "iterations in which a hundred episodes ended",
    "episode_len_mean": "mean episode length, as RLlib reports it",
    "episodes": "episodes that ended in this iteration",
    "return_sum": "sum of their returns",
    "policy_loss, ...": "RLlib's figures of the update, by the algorithm: `vf_loss`, `entropy`, "
    "`mean_kl_loss`, `pi_loss`, `qf_loss`, `qf_mean`, and SAC's temperature `alpha_value`",
    "env_runners": "how many env runners are alive, where they are processes of their own",
    "coverage": "share of the reachable states that were visited, where these are counted",
    "goals_reached": "goals reached so far, where these are counted",
    "NAME, NAME_count": "mean of what the environment reports of its episodes, and of how many",
}
"""What a row of metrics.csv holds besides the figures of the bonus."""

_LOSS = "total_loss"
_ENV_METRICS = {
    "episode_return_mean": EPISODE_RETURN_MEAN,
    "episode_len_mean": EPISODE_LEN_MEAN,
    "episodes": NUM_EPISODES,
}
_LEARNER_METRICS = (
    *("policy_loss", "vf_loss", "entropy", "mean_kl_loss"),  # PPO and APPO; SAC has the first
    *("pi_loss", "qf_loss", "qf_mean"),  # IMPALA; DQN and SAC
    "alpha_value",  # SAC's temperature
)


def lifetime_steps(result: dict[str, Any]) -> int:
    """Environment steps that RLlib has counted so far."""
    return int(result.get(ENV_RUNNER_RESULTS, {}).get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))


def metric_prefixes(experiment: Experiment) -> tuple[str, ...]:
    """How the metrics of the experiment's bonus begin."""
    if experiment.method in WITHOUT_BONUS:
        return ()
    return ("intrinsic_", f"{resolve_bonus(experiment.method).name}_")


def row_figures(result: dict[str, Any], prefixes: tuple[str, ...]) -> Row:
    """The numbers of an RLlib result that a run keeps; several modules get their id in front."""
    figures = {}
    for name, key in _ENV_METRICS.items():
        value = result[ENV_RUNNER_RESULTS].get(key)
        # NaN where no episode ended in this iteration.
        figures[name] = value if value is not None and math.isfinite(value) else None
    for name, total in result[ENV_RUNNER_RESULTS].get(EPISODE_FIGURES, {}).items():
        figures[f"{name}_count"] = total["count"]
        figures[name] = total["sum"] / total["count"] if total["count"] else None
    learners = _learners(result)
    for module_id, values in learners.items():
        prefix = "" if len(learners) == 1 else f"{module_id}/"
        for name, value in values.items():
            if name.startswith(prefixes) or name in _LEARNER_METRICS:
                # NaN where there was no update in this iteration, or none was told of.
                figures[prefix + name] = None if math.isnan(value) else value
    return {name: float(value) for name, value in figures.items() if value is not None}


def update_losses(result: dict[str, Any]) -> dict[str, float]:
    """The loss of each module that was updated in this iteration."""
    return {
        module_id: float(values[_LOSS])
        for module_id, values in _learners(result).items()
        if _LOSS in values and values.get(NUM_MODULE_STEPS_TRAINED, 0) > 0
    }


def _learners(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the learners tell of each module."""
    return {
        module_id: values
        for module_id, values in result.get(LEARNER_RESULTS, {}).items()
        if not module_id.startswith("__")
    }
