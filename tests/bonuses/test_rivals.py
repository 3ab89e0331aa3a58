"""The methods that RISE is compared with: each does what its paper promises."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from rival_batches import ACTING, LEARNED, make, rewarded, walk, wander

from rllib_rise.bonuses import (
    ICM,
    RND,
    Bonus,
    Count,
    Transitions,
)
from rllib_rise.bonuses.hashing import cell_codes, scramble
from rllib_rise.errors import ConfigError

# counts


def test_the_nth_visit_earns_one_over_the_root_of_n():
    bonus = make(Count)
    there = walk((0, 0), (1, 1))
    rewards = [float(rewarded(bonus, there)) for _ in range(4)]
    np.testing.assert_allclose(rewards, [1, 2**-0.5, 3**-0.5, 0.5], rtol=1e-6)
    assert float(bonus.reward(walk((0, 0), (2, 2)))) == 1


def test_visits_within_a_batch_count_together():
    batch = walk((0, 0), (1, 1), (1, 1), (3, 3))
    np.testing.assert_allclose(make(Count).reward(batch), [2**-0.5, 2**-0.5, 1], rtol=1e-6)


def test_a_sketch_never_counts_too_few_and_seldom_too_many():
    bonus = make(Count, table_size=4096)
    places = torch.stack([torch.arange(1000) % 500, torch.zeros(1000)], dim=1)
    batch = Transitions(obs=places, next_obs=places)
    visits = bonus.reward(batch) ** -2
    assert bool((visits > 1.999).all())
    assert float((visits > 2.001).float().mean()) < 0.01


def test_cells_join_what_rounding_tears_apart_and_no_more():
    codes = cell_codes(torch.tensor([[0.1], [0.1 + 1e-7], [0.1 - 1e-7], [0.15]]), 0.05).tolist()
    assert codes[0] == codes[1] == codes[2] != codes[3]
    swapped = cell_codes(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 0.05).tolist()
    assert swapped[0] != swapped[1]


def test_scrambled_numbers_stay_different_and_lose_their_order():
    numbers = scramble(torch.arange(100_000))
    assert len(torch.unique(numbers)) == 100_000
    low_bits = (numbers & 0xFF).float()
    assert abs(float(low_bits.mean()) - 127.5) < 1


def test_images_are_the_same_state_where_signs_of_projections_agree():
    generator = torch.Generator().manual_seed(0)
    background = torch.randint(0, 255, (24, 24, 3), generator=generator, dtype=torch.uint8)
    images = background.repeat(20, 1, 1, 1)
    for place in range(20):
        images[place, place : place + 4, :4] = 255
    bonus = make(Count, shape=(24, 24, 3))
    rewarded(bonus, Transitions(obs=images, next_obs=images))
    first = bonus.reward(Transitions(obs=images[:1], next_obs=images[:1]))
    assert float(first) <= 2**-0.5
    assert bonus.metrics()["count_states"] > 10  # of 20 that differ in 16 pixels


# what is learned


@pytest.mark.parametrize("cls", [RND, ICM])
def test_novelty_falls_where_the_agent_has_been(cls: type[Bonus]):
    bonus = make(cls, lr=1e-3)
    everywhere, place = wander(256), walk((0.5, 0.5), (0.6, 0.5), (0.7, 0.5))
    rewarded(bonus, everywhere)  # so that what is whitened does not move
    elsewhere = walk((-2.0, 1.5), (-2.1, 1.5), (-2.2, 1.4))
    before, other_before = bonus.reward(place).mean(), bonus.reward(elsewhere).mean()
    for _ in range(30):
        batch = Transitions(
            **{n: t.repeat(64, *[1] * (t.dim() - 1)) for n, t in place.tensors().items()}
        )
        rewarded(bonus, batch)
    after, other_after = bonus.reward(place).mean(), bonus.reward(elsewhere).mean()
    assert after < 0.2 * before
    assert other_after / other_before > 3 * after / before


def test_what_an_action_leads_to_is_learned_for_each_action():
    """From one place two actions lead to two others: known, unless the actions are exchanged."""
    bonus = make(ICM, lr=1e-3)
    places = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    lessons = Transitions(
        obs=places[0::2].repeat(64, 1),
        next_obs=places[1::2].repeat(64, 1),
        actions=torch.tensor([0, 1]).repeat(64),
    )
    for _ in range(100):
        rewarded(bonus, lessons)
    exchanged = Transitions(obs=lessons.obs, next_obs=lessons.next_obs, actions=1 - lessons.actions)
    assert bonus.reward(exchanged).mean() > 10 * bonus.reward(lessons).mean()


@pytest.mark.parametrize("cls", [*LEARNED, Count])
def test_a_restored_bonus_goes_on_bit_for_bit(cls: type[Bonus]):
    bonus, other = make(cls), make(cls)
    for seed in range(3):
        rewarded(bonus, wander(64, seed=seed, episode=100 * seed))
    rewarded(other, wander(50, seed=99))  # something to forget, an open episode too
    state = {name: tensor.clone() for name, tensor in bonus.state_dict().items()}
    other.load_state_dict(state)
    for episode in (3, 1000):  # the open one was the 3rd: its number comes again
        batch = wander(64, seed=episode, episode=episode)
        assert torch.equal(rewarded(bonus, batch), rewarded(other, batch))


@pytest.mark.parametrize("cls", [*LEARNED, Count])
def test_rewarding_does_not_change_the_state(cls: type[Bonus]):
    bonus, batch = make(cls), wander(64)
    rewarded(bonus, wander(64, seed=1, episode=50))
    before = {name: tensor.clone() for name, tensor in bonus.state_dict().items()}
    first, second = bonus.reward(batch), bonus.reward(batch)
    assert torch.equal(first, second)
    after = bonus.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("cls", [*LEARNED, Count])
@pytest.mark.parametrize("shape", [(3,), (12, 12, 3), (1, 16, 16), ()])
def test_images_and_vectors_of_any_shape(cls: type[Bonus], shape: tuple[int, ...]):
    generator = torch.Generator().manual_seed(0)
    kind = torch.uint8 if len(shape) == 3 else torch.float32
    path = (torch.rand((33, *shape), generator=generator) * 255).to(kind)
    batch = Transitions(
        obs=path[:-1],
        next_obs=path[1:],
        actions=torch.arange(32) % 4,
        episode_ids=torch.arange(32) // 16,
        done=torch.arange(32) % 16 == 15,
    )
    bonus = make(cls, shape=shape)
    for _ in range(2):
        rewards = rewarded(bonus, batch)
        assert rewards.shape == (32,)
        assert bool(torch.isfinite(rewards).all())


@pytest.mark.parametrize("cls", [*LEARNED, Count])
def test_weights_come_from_the_seed_alone(cls: type[Bonus]):
    torch.manual_seed(1)
    one = make(cls, seed=3).state_dict()
    before = torch.random.get_rng_state()
    other = make(cls, seed=3).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(
        torch.equal(
            one[name],
            other[name],
        )
        or one[name].isnan().all()
        for name in one
    )


@pytest.mark.parametrize("cls", ACTING)
@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-1, 1, (3,)),
        gym.spaces.MultiDiscrete([2, 3]),
        gym.spaces.Discrete(4, start=2),
    ],
)
def test_all_kinds_of_actions(cls: type[Bonus], space: gym.Space):
    bonus = make(cls, action_space=space)
    space.seed(0)
    actions = torch.as_tensor(np.stack([space.sample() for _ in range(32)]))
    batch = Transitions(**{**wander(32).tensors(), "actions": actions})
    losses = []
    for _ in range(20):
        assert bool(torch.isfinite(rewarded(bonus, batch)).all())
        losses.append(bonus.dynamics.inverse_loss)
    assert losses[-1] < losses[0]


def test_actions_that_no_network_takes_are_refused():
    with pytest.raises(ConfigError, match="Discrete, MultiDiscrete and Box"):
        make(ICM, action_space=gym.spaces.Text(3))
