"""The bonus of one episode, outside of training."""

from __future__ import annotations

import copy
from typing import Any

from ray.rllib.connectors.learner import AddOneTsToEpisodesAndTruncate
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger
from torch import Tensor

from rllib_rise.rllib.transitions import chunk_of


def episode_bonus(learner: Any, episode: SingleAgentEpisode) -> Tensor:
    """The bonus r_hat of each step of an episode, `[T]`, with the learner's present state.

    The episode is the whole batch: where states are compared with each other, with its own. It
    goes through the pipeline that training has (frame stacks, recurrent states), and neither it
    nor the learner is changed.

    Args:
        learner: One with an `intrinsic` runtime.
        episode: Of the only agent.
    """
    chunk = chunk_of(episode)
    pipeline = learner.config.build_learner_connector(
        input_observation_space=None, input_action_space=None, device=learner._device
    )
    # A phantom row with the last observation, as on-policy batches have it: with it, batches of
    # any algorithm tell next observations and the ends of episodes.
    pipeline.prepend(AddOneTsToEpisodesAndTruncate())
    batch = pipeline(
        rl_module=learner.module,
        batch={},
        episodes=[copy.deepcopy(episode)],
        shared_data={},
        metrics=MetricsLogger(root=False),
    )
    return learner.intrinsic.bonus_of(DEFAULT_MODULE_ID, batch[DEFAULT_MODULE_ID], [chunk])
