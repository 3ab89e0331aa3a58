from __future__ import annotations

import gymnasium as gym
import pytest
import torch
from rival_batches import MOVES, make, rewarded, wander

from rllib_rise.bonuses import (
    MaxRenyi,
    Transitions,
    parse_settings,
)
from rllib_rise.errors import ConfigError


def crowd_and_rare(seed: int) -> Transitions:
    """A crowd of 240 around one place, 16 around another; the rare ones are last."""
    generator = torch.Generator().manual_seed(seed)
    obs = 0.1 * torch.randn(256, 2, generator=generator)
    obs[240:] += torch.tensor([2.0, 2.0])
    actions = torch.zeros(256, dtype=torch.int64)
    actions[:8] = 1
    return Transitions(obs=obs, actions=actions)


def test_max_renyi_orders_rare_above_frequent():
    bonus = make(MaxRenyi)
    for seed in range(30):
        rewarded(bonus, crowd_and_rare(seed))
    rewards = bonus.reward(crowd_and_rare(99))
    assert float(rewards.mean()) == pytest.approx(1, rel=1e-4)
    assert rewards[240:].mean() > 1.2 * rewards[:240].mean()


def test_the_density_follows_the_policy():
    """What was a crowd becomes rare when all have gone elsewhere."""

    def batch(seed: int, crowd: float) -> Transitions:
        generator = torch.Generator().manual_seed(seed)
        place = torch.full((256, 1), crowd)
        place[240:] *= -1
        return Transitions(obs=place + 0.1 * torch.randn(256, 2, generator=generator))

    bonus = make(MaxRenyi)
    for crowd in (1.0, -1.0):
        for seed in range(30):
            rewarded(bonus, batch(seed, crowd))
        rewards = bonus.reward(batch(99, crowd))
        assert rewards[240:].mean() > 1.2 * rewards[:240].mean()


def test_a_small_order_contrasts_more():
    contrasts = []
    for alpha in (0.1, 0.9):
        bonus = make(MaxRenyi, alpha=alpha)
        for seed in range(10):
            rewarded(bonus, crowd_and_rare(seed))
        rewards = bonus.reward(crowd_and_rare(99))
        contrasts.append(float(rewards[240:].mean() / rewards[:240].mean()))
    assert contrasts[0] > contrasts[1] > 1


def test_over_state_and_action_a_rare_action_is_worth_more():
    settings = parse_settings(MaxRenyi, {"over": "state-action"})
    bonus = MaxRenyi(settings, (2,), action_space=MOVES)
    for seed in range(30):
        rewarded(bonus, crowd_and_rare(seed))
    batch = crowd_and_rare(99)
    as_usual = Transitions(obs=batch.obs, actions=torch.zeros_like(batch.actions))
    odd = Transitions(obs=batch.obs, actions=torch.ones_like(batch.actions))
    both = Transitions(
        obs=torch.cat([as_usual.obs, odd.obs]), actions=torch.cat([as_usual.actions, odd.actions])
    )
    usual, unusual = bonus.reward(both).chunk(2)
    assert bool((unusual[:240] > usual[:240]).all())


def test_the_reward_is_a_power_of_the_density_per_number():
    bonus = make(MaxRenyi, alpha=0.2)
    for seed in range(3):
        rewarded(bonus, wander(256, seed=seed))
    batch = wander(256, seed=9)
    errors = bonus.vae.errors(batch.obs)
    nats = (errors.squared / errors.squared.mean() + errors.kl / 1).double() / 2  # 2 numbers
    nats = nats.clamp(max=nats.mean() + 3 * nats.std(correction=0))
    expected = torch.exp(0.8 * nats)
    torch.testing.assert_close(
        bonus.reward(batch).double(), expected / expected.mean(), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("size", [2, 10, 984])
def test_no_single_state_takes_the_whole_bonus(size: int):
    bonus = make(MaxRenyi, shape=(size,))
    for seed in range(5):
        rewarded(bonus, wander(512, seed=seed, size=size))
    rewards = bonus.reward(wander(512, seed=9, size=size))
    assert float(rewards.median()) > 0.1
    assert float(rewards.max()) < 0.1 * 512


def test_before_anything_was_learned_all_states_are_equally_rare():
    assert make(MaxRenyi).reward(wander(16)).tolist() == [1.0] * 16


@pytest.mark.parametrize("alpha", [-0.1, 1.0])
def test_orders_without_a_reward_are_refused(alpha: float):
    with pytest.raises(ConfigError, match="alpha"):
        make(MaxRenyi, alpha=alpha)


def test_actions_beyond_all_measure_do_not_spoil_the_model():
    settings = parse_settings(MaxRenyi, {"over": "state-action"})
    bonus = MaxRenyi(settings, (2,), action_space=gym.spaces.Box(-1, 1, (2,)))
    obs, actions = torch.randn(64, 2), torch.rand(64, 2)
    bonus.update(Transitions(obs=obs, actions=1e30 * actions))  # their squares are infinite
    assert bonus.metrics()["max-renyi_loss"] == 0  # nothing was learned
    bonus.update(Transitions(obs=obs, actions=actions))
    assert bonus.reward(Transitions(obs=obs, actions=actions)).isfinite().all()
    assert bonus.metrics()["max-renyi_loss"] != 0
