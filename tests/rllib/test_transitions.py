"""What bonuses see of RLlib's batches: recurrent ones, replayed ones, nested observations."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns
from small_algorithms import small

from rllib_rise.bonuses import Need
from rllib_rise.errors import ConfigError
from rllib_rise.rllib.transitions import select_transitions, state_shape

ALL = frozenset({Need.NEXT_OBS, Need.ACTIONS, Need.EPISODES})


class Steps(gym.Env):
    """Observes the number of the episode and that of the step; episodes of growing length."""

    observation_space = gym.spaces.Box(0, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.episode = 0

    def reset(self, *, seed=None, options=None):
        self.episode, self.step_number = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action):
        self.step_number += 1
        over = self.step_number >= 2 + self.episode
        # Odd episodes come to an end, even ones are cut off by a limit.
        return self._observe(), 1.0, over and self.episode % 2 == 1, over, {}

    def _observe(self):
        return np.array([self.episode, self.step_number], np.float32)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("lstm", [False, True])
def test_next_observations_and_chunks_of_recurrent_batches(build, lstm: bool):
    config = small("PPO", Steps).env_runners(num_envs_per_env_runner=1)
    layers = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5} if lstm else {}
    algorithm = build(config.rl_module(model_config={"fcnet_hiddens": [16], **layers}))
    learner = algorithm.learner_group._learner
    seen = []
    apply = learner.intrinsic.apply

    def watch(module_id, batch, *args):
        seen.append({name: value.clone() for name, value in batch.items() if name != "state_in"})
        return apply(module_id, batch, *args)

    learner.intrinsic.apply = watch
    algorithm.train()
    batch = seen[0]
    assert batch[Columns.OBS].dim() == (3 if lstm else 2)
    found = select_transitions("m", batch, ALL)
    assert len(found) == int(batch[Columns.LOSS_MASK].sum()) >= 64
    # An episode's next observation is the same episode, one step later; no padding among them.
    moved = found.next_obs - found.obs
    assert torch.equal(moved, torch.tensor([[0.0, 1.0]]).expand_as(moved))
    assert (found.obs[:, 0] > 0).all()
    for chunk in found.episodes.unique():
        rows = found.obs[found.episodes == chunk]
        assert len(rows[:, 0].unique()) == 1
        assert torch.equal(rows[1:, 1] - rows[:-1, 1], torch.ones(len(rows) - 1))
    assert len(found.episodes.unique()) == len(found.obs[:, 0].unique())


def test_replayed_batches_bring_their_next_observations():
    batch = {
        Columns.OBS: torch.randn(4, 2),
        Columns.NEXT_OBS: torch.randn(4, 2),
        Columns.ACTIONS: torch.arange(4),
    }
    found = select_transitions("m", batch, {Need.NEXT_OBS, Need.ACTIONS})
    assert torch.equal(found.next_obs, batch[Columns.NEXT_OBS])
    assert torch.equal(found.actions, batch[Columns.ACTIONS])


def test_a_state_function_picks_from_both():
    batch = {
        Columns.OBS: {"a": torch.randn(4, 2), "b": torch.randn(4, 3)},
        Columns.NEXT_OBS: {"a": torch.randn(4, 2), "b": torch.randn(4, 3)},
    }
    found = select_transitions("m", batch, {Need.NEXT_OBS}, lambda obs: obs["b"])
    assert torch.equal(found.obs, batch[Columns.OBS]["b"])
    assert torch.equal(found.next_obs, batch[Columns.NEXT_OBS]["b"])


def test_the_states_shape_is_that_of_the_function():
    space = gym.spaces.Tuple((gym.spaces.Box(-1, 1, (4, 3), np.float32), gym.spaces.Discrete(5)))
    assert state_shape("m", space, lambda obs: obs[0].flatten(1)) == (12,)
    assert state_shape("m", space.spaces[0]) == (4, 3)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (lambda obs: obs, "one tensor is needed"),
        (lambda obs: obs["a"].sum(), r"shape \(\) for 1 observations"),
        (lambda obs: obs["a"].flatten(), r"shape \(2,\) for 1 observations"),
    ],
)
def test_what_is_not_one_tensor_of_states_is_refused(state, words: str):
    space = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (2,), np.float32)})
    with pytest.raises(ConfigError, match=words):
        state_shape("m", space, state)


def test_a_batch_without_real_transitions_has_none():
    batch = {
        Columns.OBS: torch.randn(3, 2),
        Columns.ACTIONS: torch.zeros(3, dtype=torch.int64),
        Columns.LOSS_MASK: torch.zeros(3, dtype=torch.bool),
    }
    found = select_transitions("m", batch, {*ALL, Need.WHOLE_EPISODES})
    assert len(found) == 0
    assert found.next_obs.shape == (0, 2)
    assert found.done.dtype == torch.bool
    assert found.steps.dtype == found.episode_ids.dtype == torch.int64


@pytest.mark.parametrize("masked", [True, False])
def test_a_last_transition_without_its_next_observation_is_refused(masked: bool):
    batch = {Columns.OBS: torch.randn(3, 2)}
    if masked:
        batch[Columns.LOSS_MASK] = torch.ones(3, dtype=torch.bool)
    with pytest.raises(ConfigError, match="the observation behind it"):
        select_transitions("m", batch, {Need.NEXT_OBS})
