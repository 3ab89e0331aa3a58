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
)

from rllib_rise.bonuses.registry import WITHOUT_BONUS, resolve_bonus
from rllib_rise.envs.figures import EPISODE_FIGURES
from rllib_rise.errors import RiseError
from rllib_rise.experiments.schema import Experiment

Row = dict[str, float]
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
    try:
        return int(result[ENV_RUNNER_RESULTS][NUM_ENV_STEPS_SAMPLED_LIFETIME])
    except KeyError:
        raise RiseError(
            "no env runner returned a sample: the environment probably raised on all of them; "
            "rllib.num_env_runners=0 runs it in this process and shows its error"
        ) from None


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
    learners = {
        module_id: values
        for module_id, values in result.get(LEARNER_RESULTS, {}).items()
        if not module_id.startswith("__")
    }
    for module_id, values in learners.items():
        prefix = "" if len(learners) == 1 else f"{module_id}/"
        for name, value in values.items():
            if name.startswith(prefixes) or name in _LEARNER_METRICS:
                # NaN where there was no update in this iteration, or none was told of.
                figures[prefix + name] = None if math.isnan(value) else value
    return {name: float(value) for name, value in figures.items() if value is not None}
