"""The other methods and the controls inside RLlib."""

from __future__ import annotations

import os

import gymnasium as gym
import numpy as np
import pytest
import torch
from envs_for_tests import RandomFrames, TwoAgents
from phase1_helpers import assert_same, states
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME
from small_algorithms import small
from test_standardize import First
from test_transitions import Steps

from rllib_rise.bonuses import Bonus, BonusSettings, Need, Transitions
from rllib_rise.errors import ConfigError
from rllib_rise.rllib.runtime import IntrinsicRuntime
from rllib_rise.rllib.transitions import in_order

pytestmark = pytest.mark.usefixtures("ray_cluster")

SUM = {
    "method": "sum",
    "parts": [{"method": "rise", "k": 3, "standardize": True}, {"method": "icm", "kappa": 0.1}],
}
PAIRS = [
    ("PPO", {"method": "count"}),
    ("PPO", {"method": "ngu"}),
    ("PPO", SUM),
    ("APPO", {"method": "ride"}),
    ("IMPALA", {"method": "max-renyi", "over": "state-action"}),
    ("DQN", {"method": "icm"}),
    ("SAC", {"method": "icm"}),
    ("SAC", {"method": "max-renyi"}),
    ("DQN", SUM),
]


def name_of(value) -> str:
    return value["method"] if isinstance(value, dict) else value


def figures_of(algorithm, updates: int = 2) -> dict:
    """The learner's figures after some updates; the first iterations may only sample."""
    for _ in range(60):
        figures = algorithm.train().get("learners", {}).get(DEFAULT_MODULE_ID, {})
        # NaN where an asynchronous learner has not told of any.
        updates -= figures.get("intrinsic_reward_std", np.nan) >= 0
        if not updates:
            return figures
    raise AssertionError("no updates")


class Witness(Bonus):
    """Keeps what it is shown, and pays nothing."""

    name = "witness"

    def __init__(self, settings, obs_shape, *, seed=0):
        super().__init__(settings, obs_shape, seed=seed)
        self.seen = []

    @classmethod
    def needs(cls, settings):
        return frozenset({Need.NEXT_OBS, Need.WHOLE_EPISODES})

    def reward(self, batch):
        self.seen.append(batch)
        return torch.zeros(len(batch))


@pytest.mark.parametrize(("name", "settings"), PAIRS, ids=name_of)
def test_a_method_trains_and_goes_on_from_its_checkpoint(
    build, tmp_path, name: str, settings: dict
):
    algorithm = build(small(name).intrinsic(**settings))
    figures = figures_of(algorithm)
    assert figures["intrinsic_reward_mean"] != 0
    assert figures["intrinsic_megabytes"] > 0
    path = algorithm.save_to_path(str(tmp_path))
    restored = build(small(name).intrinsic(**settings))
    restored.restore_from_path(path)
    assert_same(states(algorithm)[0], states(restored)[0])
    updates = states(algorithm)[0]["clock"]["updates"]
    figures_of(restored)
    assert states(restored)[0]["clock"]["updates"] > updates


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("name", ["PPO", "IMPALA"])
def test_episodes_are_told_apart_across_batches(build, name: str, lstm: bool):
    layers = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5} if lstm else {}
    config = small(name, Steps, batch=48).env_runners(num_envs_per_env_runner=1)
    config.rl_module(model_config={"fcnet_hiddens": [16], **layers})
    algorithm = build(config.intrinsic(method=Witness))
    for _ in range(6):
        algorithm.train()
    batches = algorithm.learner_group._learner.intrinsic.bonuses[DEFAULT_MODULE_ID].seen
    episodes: dict[int, int] = {}
    cut = 0
    for batch in batches:
        for obs, episode, done in zip(
            batch.obs.int().tolist(), batch.episode_ids.tolist(), batch.done.tolist(), strict=True
        ):
            assert episodes.setdefault(obs[0], episode) == episode
            assert done == (obs[1] + 1 == 2 + obs[0])
        assert torch.equal(batch.steps, batch.obs[:, 1].long())
        cut += not bool(batch.done[-1])
    assert len(set(episodes.values())) == len(episodes) > 3
    assert cut > 0  # else no episode went on in another batch


def test_agents_that_share_a_module_are_different_episodes(build):
    config = small("PPO", TwoAgents).multi_agent(
        policies={"shared"}, policy_mapping_fn=lambda *args, **kwargs: "shared"
    )
    algorithm = build(config.intrinsic(method=Witness))
    algorithm.train()
    (batch, *_) = algorithm.learner_group._learner.intrinsic.bonuses["shared"].seen
    assert len(batch.episode_ids.unique()) >= 4  # two agents, two environments
    for episode in batch.episode_ids.unique():
        assert int(batch.done[batch.episode_ids == episode].sum()) <= 1


def shuffled_chunks() -> Transitions:
    """Two episodes, of which the chunks come as RLlib deals them out to learners."""
    path = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    steps = torch.cat([torch.arange(12, 20), torch.arange(5), torch.arange(12), torch.arange(5, 9)])
    ids = torch.tensor([7] * 8 + [3] * 5 + [7] * 12 + [3] * 4)
    return Transitions(
        obs=path[:-1],
        next_obs=path[1:],
        actions=torch.arange(29) % 2,
        episode_ids=ids,
        steps=steps,
        done=torch.zeros(29, dtype=torch.bool),
    )


def test_chunks_are_brought_in_order_before_they_are_rewarded():
    batch = shuffled_chunks()
    order = in_order(batch)
    ordered = batch[order]
    assert ordered.episode_ids.tolist() == [3] * 9 + [7] * 20
    assert ordered.steps.tolist() == [*range(9), *range(20)]
    assert torch.equal(ordered.obs, batch.obs[order])
    assert in_order(ordered) is None
    assert in_order(Transitions(obs=batch.obs)) is None
    interleaved = torch.argsort(ordered.steps, stable=True)
    assert in_order(ordered[interleaved]) is None  # each episode's own are in their order


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ride", "ngu", "max-renyi"])
def test_images(build, method: str):
    algorithm = build(small("PPO", RandomFrames).intrinsic(method=method))
    figures = algorithm.train()["learners"][DEFAULT_MODULE_ID]
    assert np.isfinite(figures["intrinsic_reward_mean"])


@pytest.mark.parametrize(
    ("name", "method", "options", "complaint"),
    [
        ("DQN", "ride", {}, "needs episodes that can be told apart across batches"),
        ("SAC", "ngu", {}, "needs episodes that can be told apart across batches"),
        ("IMPALA", "ngu", {"aggregators": 1, "runners": 1, "learners": 1}, "aggregator"),
        ("APPO", "icm", {"learners": 2, "runners": 1}, "asynchronously"),
    ],
)
def test_what_an_algorithm_cannot_give_is_refused(name, method, options, complaint):
    with pytest.raises(ConfigError, match=complaint):
        small(name, **options).intrinsic(method=method).validate()


def test_the_clock_of_a_part_counts_as_well():
    parts = [{"method": "re3", "clock": "updates"}]
    config = small("APPO", learners=2, runners=1).intrinsic(method="sum", parts=parts)
    with pytest.raises(ConfigError, match="clock='updates'"):
        config.validate()


def test_a_part_of_a_sum_has_its_phase_1(build):
    parts = [{"method": "count"}, {"method": "rise", "warmup_steps": 200}]
    algorithm = build(small("PPO").intrinsic(method="sum", parts=parts))
    figures = figures_of(algorithm)
    assert algorithm.warmup_env_steps() >= 200
    assert 1 <= figures["sum_1_rise_k"] <= 15


def test_files_of_parts_are_found_from_anywhere():
    parts = [{"method": "rise", "encoder_file": "here.safetensors"}]
    config = small("PPO").intrinsic(method="sum", parts=parts)
    (part,) = config.intrinsic_settings["parts"]
    assert part["encoder_file"] == os.path.abspath("here.safetensors")


def test_n_step_returns_have_no_next_observation_to_reward():
    with pytest.raises(ConfigError, match="n_step"):
        small("DQN").training(n_step=3).intrinsic(method="count").validate()


# controls


@pytest.mark.parametrize("name", ["PPO", "DQN", "IMPALA"])
def test_a_random_policy_samples_and_learns_nothing(build, name: str):
    algorithm = build(small(name).intrinsic(method="random"))
    before = {key: value.clone() for key, value in algorithm.get_module().state_dict().items()}
    for _ in range(2):
        result = algorithm.train()
    assert result[ENV_RUNNER_RESULTS][NUM_ENV_STEPS_SAMPLED_LIFETIME] >= 128
    after = algorithm.get_module().state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


class Tally(gym.Env):
    """Ten steps; counts the actions of all episodes."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(4)
    taken = np.zeros(4)

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        self.left = 10
        return np.zeros(1, np.float32), {}

    def step(self, action):
        type(self).taken[action] += 1
        self.left -= 1
        return np.zeros(1, np.float32), 0.0, self.left == 0, False, {}


def test_a_random_policy_takes_all_actions_alike(build):
    Tally.taken[:] = 0
    algorithm = build(small("PPO", Tally, batch=2000).intrinsic(method="random"))
    algorithm.train()
    shares = Tally.taken / Tally.taken.sum()
    assert Tally.taken.sum() >= 2000
    np.testing.assert_allclose(shares, 0.25, atol=0.05)


def test_a_random_policy_takes_no_settings():
    with pytest.raises(ConfigError, match="'random' takes no settings"):
        small("PPO").intrinsic(method="random", lambda_0=0.3).validate()


def test_a_shuffled_bonus_has_the_same_values_for_other_transitions():
    values = torch.arange(50.0)

    def given(shuffle: bool, updates: int = 0) -> torch.Tensor:
        runtime = IntrinsicRuntime(First, BonusSettings(lambda_0=1.0, shuffle=shuffle))
        runtime.add_module("m", gym.spaces.Box(-9, 99, (1,), np.float32))
        for _ in range(updates + 1):
            runtime.clock.tick(None)
        batch = {Columns.OBS: values[:, None], Columns.REWARDS: torch.zeros(50)}
        runtime.apply("m", batch, None, None)
        return batch[Columns.REWARDS]

    assert torch.equal(given(False), values)
    shuffled = given(True)
    assert torch.equal(shuffled.sort().values, values)
    assert abs(np.corrcoef(shuffled, values)[0, 1]) < 0.5
    assert torch.equal(shuffled, given(True))
    assert not torch.equal(shuffled, given(True, updates=1))
