"""The bonus of one episode, against its class on transitions that are put together by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from phase1_helpers import assert_same
from ray.rllib.core import DEFAULT_MODULE_ID
from small_algorithms import small

from rllib_rise.bonuses import Transitions
from rllib_rise.rllib.episode_bonus import episode_bonus

pytestmark = pytest.mark.usefixtures("ray_cluster")

CASES = {
    "PPO, RISE": ("PPO", {"method": "rise", "k": 3}, {}),
    "PPO, RISE within episodes": ("PPO", {"method": "rise", "k": 3, "particles": "episode"}, {}),
    "PPO, whole episodes": ("PPO", {"method": "ngu"}, {}),
    "PPO, recurrent": ("PPO", {"method": "icm"}, {"use_lstm": True, "max_seq_len": 6}),
    "DQN, next observations": ("DQN", {"method": "icm"}, {}),
    "SAC, actions": ("SAC", {"method": "icm"}, {}),
}


def transitions_of(episode) -> Transitions:
    path = torch.as_tensor(episode.get_observations())
    steps = len(episode)
    return Transitions(
        obs=path[:-1],
        next_obs=path[1:],
        actions=torch.as_tensor(episode.get_actions()),
        episodes=torch.zeros(steps, dtype=torch.int64),
        episode_ids=torch.full((steps,), 7),
        steps=torch.arange(steps),
        done=torch.arange(steps) == steps - 1,
    )


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_the_bonus_gives_for_the_episodes_transitions(build, case: str):
    name, settings, model = CASES[case]
    config = small(name).intrinsic(**settings)
    config.rl_module(model_config={**config.model_config, **model})
    algorithm = build(config)
    for _ in range(2):
        algorithm.train()
    episode = algorithm.env_runner.sample(num_episodes=1, explore=True)[0]
    learner = algorithm.learner_group._learner
    before, kept = learner.intrinsic.get_state(), copy.deepcopy(episode)

    found = episode_bonus(learner, episode)

    bonus = learner.intrinsic.bonuses[DEFAULT_MODULE_ID]
    expected = bonus.reward(transitions_of(episode))
    assert len(found) == len(episode) == 20
    torch.testing.assert_close(found, expected)
    assert expected.std() > 0
    assert_same(learner.intrinsic.get_state(), before)
    assert (len(episode), episode.id_) == (len(kept), kept.id_)
    assert (episode.get_observations() == kept.get_observations()).all()
