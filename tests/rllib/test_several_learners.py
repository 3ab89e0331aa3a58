"""Several learners: the same rewards and the same state as one."""

from __future__ import annotations

import copy
import socket

import pytest
import ray
import torch
from keeping import LEARNERS, take
from peers import Counter, Peer
from phase1_helpers import assert_same, states
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from small_algorithms import small

from rllib_rise.bonuses.rise import RISE
from rllib_rise.errors import NonFiniteError, RiseError

pytestmark = pytest.mark.usefixtures("ray_cluster")

SETTINGS = {
    "rise": {"k": 5},
    "standardized": {"k": 5, "standardize": True},
    "box-cox": {"k": 5, "form": "box-cox", "alpha": 1.0},
    "within episodes": {"k": 3, "particles": "episode"},
    "rnd": {"method": "rnd"},
    "ride": {"method": "ride"},
}


def with_learners(name: str, learners: int, **settings):
    # The same number of transitions in all, whatever the number of learners.
    config = small(name, learners=learners, batch=128 // max(1, learners))
    if name == "PPO":
        config.training(minibatch_size=None)
    return config.intrinsic(**settings).learners(learner_class=LEARNERS[name])


def episodes_for(build, name: str, kind: str) -> list:
    """What an algorithm's learners get for one update; the same for all that ask."""
    algorithm = build(small(name))
    if name == "PPO":
        # RLlib cuts episodes to deal out equal numbers of steps; of eight, each learner gets four.
        return algorithm.env_runner.sample(num_episodes=7 if kind == "ride" else 8)
    algorithm.local_replay_buffer.add(algorithm.env_runner.sample(num_episodes=12))
    return algorithm.local_replay_buffer.sample(
        num_items=128, n_step=1, gamma=0.99, beta=0.4, sample_episodes=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("PPO", kind) for kind in SETTINGS), ("DQN", "rise"), ("DQN", "standardized")],
)
def test_one_and_two_learners_give_the_same_rewards(build, name: str, kind: str):
    episodes = episodes_for(build, name, kind)
    seen = {}
    for learners in (0, 2):
        algorithm = build(with_learners(name, learners, **SETTINGS[kind]))
        rewards = []
        # A model that learns comes to the same only up to the order of its minibatches.
        for update in range(1 if kind in ("rnd", "ride") else 3):
            algorithm.learner_group.update(
                episodes=copy.deepcopy(episodes),  # RLlib puts its phantom steps into them
                timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 128 * (update + 1)},
            )
            obs, reward = take(algorithm)
            rewards.append(reward)
        seen[learners] = obs, torch.stack(rewards)
        for other in states(algorithm)[1:]:
            assert_same(states(algorithm)[0], other)
    (obs, rewards), (other_obs, other_rewards) = seen[0], seen[2]
    assert torch.equal(obs, other_obs)
    assert (rewards - 1).abs().max() > 0.01
    torch.testing.assert_close(rewards, other_rewards, rtol=1e-4, atol=1e-5)


@pytest.fixture
def peers():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = [Peer.remote(rank, port) for rank in range(2)]
    yield made
    for peer in made:
        ray.kill(peer)


def test_rows_are_gathered_in_order_whatever_their_number(peers):
    first, second = torch.randn(3, 2), torch.randn(5, 2)
    found = ray.get([peers[0].gather.remote(first), peers[1].gather.remote(second)])
    for everyone, _ in found:
        assert torch.equal(everyone, torch.cat([first, second]))
    assert [own for _, own in found] == [(0, 3), (3, 8)]
    flags = torch.tensor([True, False, True])
    found = ray.get([peers[0].gather.remote(flags), peers[1].gather.remote(None)])
    for everyone, _ in found:
        assert everyone.dtype == torch.bool
        assert torch.equal(everyone, flags)
    assert found[1][1] == (3, 3)


def batch_of(rows: int, seed: int) -> dict:
    """A chunk of `rows` transitions, and its phantom."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(rows + 1, dtype=torch.bool)
    mask[-1] = False
    return {
        Columns.OBS: torch.randn(rows + 1, 2, generator=generator),
        Columns.ACTIONS: torch.zeros(rows + 1, dtype=torch.int64),
        Columns.REWARDS: torch.zeros(rows + 1),
        Columns.LOSS_MASK: mask,
    }


def test_a_module_that_one_learner_has_nothing_of(peers):
    mine = [{"a": batch_of(4, 1)}, {"a": batch_of(4, 2), "b": batch_of(6, 3)}]
    theirs = [{"a": batch_of(5, 4)}, {"b": batch_of(3, 5)}]
    for bonus_class in (RISE, Counter):
        (first, one), (second, other) = ray.get(
            [
                peers[0].apply.remote(bonus_class, mine),
                peers[1].apply.remote(bonus_class, theirs),
            ]
        )
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
        rewards = [*first[0].values(), *first[1].values(), *second[0].values(), *second[1].values()]
        assert all(bool((part[:-1] > 0).all()) and part[-1] == 0 for part in rewards)
        if bonus_class is Counter:
            # Two chunks at first, then 9 transitions before and one chunk.
            assert first[0]["a"][0] == pytest.approx(0.1 * 2)
            assert first[1]["a"][0] == pytest.approx(0.1 * (9 + 1))
            assert one["a/seen"] == 13
            assert one["b/seen"] == 9


def test_a_reward_that_is_no_number_stops_all_learners(peers):
    spoiled = batch_of(4, 1)
    spoiled[Columns.REWARDS][2] = torch.nan
    calls = [
        peers[0].apply.remote(RISE, [{"a": spoiled}]),
        peers[1].apply.remote(RISE, [{"b": batch_of(3, 2), "a": batch_of(3, 2)}]),
    ]
    with pytest.raises(NonFiniteError, match="1 rewards of module 'a'"):
        ray.get(calls[0], timeout=60)
    with pytest.raises(RiseError, match="failed on another learner"):
        ray.get(calls[1], timeout=60)
