"""Figures that environments report per episode, as metrics of the env runners."""

from __future__ import annotations

import math
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_rise.envs.figures import EPISODE_FIGURES


class EpisodeFigures(RLlibCallback):
    """Logs `info["episode_figures"]` of an episode's last step.

    A figure `x` becomes `result["env_runners"]["x"]`, its mean over the episodes that ended in this
    iteration on all env runners, NaN if none did; sum and count stand in
    `result["env_runners"]["episode_figures"]["x"]`. The mean is taken from those, because RLlib's
    own mean over env runners weighs a runner with one episode like a runner with fifty.

    Our configs add it by themselves. With any other: `config.callbacks(EpisodeFigures)`.
    """

    def on_episode_end(self, *, episode: Any, metrics_logger: MetricsLogger, **kwargs: Any) -> None:
        """Add the figures of a finished episode."""
        if not isinstance(episode, SingleAgentEpisode):
            return
        for name, value in episode.get_infos(-1).get(EPISODE_FIGURES, {}).items():
            for kind, summand in (("sum", float(value)), ("count", 1)):
                metrics_logger.log_value((EPISODE_FIGURES, name, kind), summand, reduce="sum")

    def on_train_result(self, *, result: dict[str, Any], **kwargs: Any) -> None:
        """Put the means into the result."""
        _add_means(result)

    def on_evaluate_end(self, *, evaluation_metrics: dict[str, Any], **kwargs: Any) -> None:
        """Put the means into the evaluation's result."""
        _add_means(evaluation_metrics)


def _add_means(result: dict[str, Any]) -> None:
    env_runners = result.get(ENV_RUNNER_RESULTS, {})
    for name, total in env_runners.get(EPISODE_FIGURES, {}).items():
        # RLlib reports NaN, and not 0, for a sum of nothing.
        if not total["count"] > 0:
            total["sum"], total["count"] = 0.0, 0
        env_runners[name] = total["sum"] / total["count"] if total["count"] else math.nan
