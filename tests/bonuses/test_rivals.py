"""The methods that RISE is compared with: each does what its paper promises."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rllib_rise.bonuses import (
    ICM,
    NGU,
    RIDE,
    RND,
    Bonus,
    Count,
    MaxRenyi,
    Transitions,
    parse_settings,
)
from rllib_rise.bonuses.episodes import EpisodicMemory, visits_so_far
from rllib_rise.bonuses.hashing import cell_codes, scramble
from rllib_rise.errors import ConfigError

MOVES = gym.spaces.Discrete(4)
LEARNED = (RND, ICM, RIDE, NGU, MaxRenyi)
ACTING = (ICM, RIDE, NGU)


def make(cls: type[Bonus], shape: tuple[int, ...] = (2,), seed: int = 0, **values) -> Bonus:
    spaces = {"action_space": values.pop("action_space", MOVES)} if cls in ACTING else {}
    return cls(parse_settings(cls, values), shape, seed=seed, **spaces)


def walk(*points: tuple[float, float], episode: int = 0, done: bool = False) -> Transitions:
    """A walk over the points, one step each, as one chunk of an episode."""
    path = torch.tensor(points, dtype=torch.float32)
    steps = len(path) - 1
    over = torch.zeros(steps, dtype=torch.bool)
    over[-1] = done
    return Transitions(
        obs=path[:-1],
        next_obs=path[1:],
        actions=torch.arange(steps) % 4,
        episode_ids=torch.full((steps,), episode),
        done=over,
    )


def wander(count: int, *, seed: int = 0, size: int = 2, episode: int = 0) -> Transitions:
    generator = torch.Generator().manual_seed(seed)
    path = torch.randn(count + 1, size, generator=generator)
    return Transitions(
        obs=path[:-1],
        next_obs=path[1:],
        actions=torch.randint(0, 4, (count,), generator=generator),
        episode_ids=torch.arange(count) // 16 + episode,
        done=torch.arange(count) % 16 == 15,
    )


def rewarded(bonus: Bonus, batch: Transitions) -> torch.Tensor:
    rewards = bonus.reward(batch)
    bonus.update(batch)
    return rewards


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


@pytest.mark.parametrize("cls", [*LEARNED, Count])
def test_a_restored_bonus_goes_on_bit_for_bit(cls: type[Bonus]):
    bonus, other = make(cls), make(cls)
    for seed in range(3):
        rewarded(bonus, wander(64, seed=seed, episode=100 * seed))
    rewarded(other, wander(50, seed=99))  # something to forget, an open episode too
    state = {name: tensor.clone() for name, tensor in bonus.state_dict().items()}
    other.load_state_dict(state)
    for seed in (10, 11):
        batch = wander(64, seed=seed, episode=100 * seed)
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


# RIDE


def test_ride_pays_for_change_and_nothing_for_staying():
    batch = walk((0, 0), (0, 0), (1, 0), (1, 1))
    stay, *moves = make(RIDE).reward(batch).tolist()
    assert stay == 0
    assert min(moves) > 0.01


def test_ride_divides_by_the_root_of_the_episodes_visits():
    a, b = (0.0, 0.0), (1.0, 0.0)
    bonus = make(RIDE)
    there_and_back = walk(a, b, a, b, a)
    rewards = bonus.reward(there_and_back)
    # Arrivals: b for the 1st time, a for the 2nd (it began there), b for the 2nd, a for the 3rd.
    np.testing.assert_allclose(rewards / rewards[0], [1, 2**-0.5, 2**-0.5, 3**-0.5], rtol=1e-5)


def test_ride_counts_on_in_the_next_chunk_and_anew_in_the_next_episode():
    a, b = (0.0, 0.0), (1.0, 0.0)
    bonus = make(RIDE)
    whole = make(RIDE).reward(walk(a, b, a, b, a))
    remember(bonus, walk(a, b, a))
    np.testing.assert_allclose(bonus.reward(walk(a, b, a)), _discount([2, 3], whole), rtol=1e-5)
    np.testing.assert_allclose(
        bonus.reward(walk(a, b, a, episode=1)), _discount([1, 2], whole), rtol=1e-5
    )
    remember(bonus, walk(a, b, done=True))
    assert len(bonus.memory) == 0


def remember(bonus: RIDE, batch: Transitions) -> None:
    """What `update` does, without teaching the models."""
    bonus.reward(batch)
    bonus.memory.remember(batch, bonus._first(batch), bonus._visited)


def _discount(visits: list[int], whole: torch.Tensor) -> np.ndarray:
    return float(whole[0]) / np.sqrt(visits)


def test_visits_so_far_equal_a_loop():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 5, (300,), generator=generator)
    codes = torch.randint(0, 7, (300,), generator=generator)
    seen: dict[tuple[int, int], int] = {}
    expected = []
    for pair in zip(ids.tolist(), codes.tolist(), strict=True):
        seen[pair] = seen.get(pair, 0) + 1
        expected.append(seen[pair])
    assert visits_so_far(ids, codes).tolist() == expected


# NGU


def episodic_by_the_book(path: np.ndarray, k: int, mean_square: float) -> list[float]:
    """Algorithm 1 of the paper, step by step; absent neighbours are at the mean distance."""
    memory, rewards = [path[0]], []
    for state in path[1:]:
        squares = sorted(float(np.sum((state - other) ** 2)) for other in memory)[:k]
        scaled = [square / mean_square for square in squares] + [1.0] * (k - len(squares))
        kernel = [0.0001 / (max(d - 0.008, 0) + 0.0001) for d in scaled]
        similarity = math.sqrt(sum(kernel)) + 0.001
        rewards.append(0.0 if similarity > 8 else 1 / similarity)
        memory.append(state)
    return rewards


def test_ngus_episodic_bonus_is_the_papers_algorithm_step_by_step():
    bonus, batch = make(NGU, k=3), wander(16)
    phi, phi_next = bonus.dynamics.embed(batch)
    squares = bonus._neighbors(batch, phi, phi_next)
    bonus.mean_square.fill_(3.0)
    path = torch.cat([phi[:1], phi_next]).double().numpy()
    expected = episodic_by_the_book(path, 3, mean_square=3.0)
    np.testing.assert_allclose(bonus._episodic(squares), expected, rtol=1e-4)


def test_ngu_pays_less_for_coming_back_within_an_episode():
    a, b, c = (0.0, 0.0), (1.0, 0.0), (0.0, 1.0)
    rewards = make(NGU, k=1).reward(walk(a, b, c, b))
    assert float(rewards[2]) < 0.5 * float(rewards[0])


def test_ngus_memory_goes_on_in_the_next_chunk_and_resets_with_the_episode():
    a, b, c = (0.0, 0.0), (1.0, 0.0), (0.0, 1.0)
    bonus = make(NGU, k=1, lr=1e-12, rnd_lr=1e-12)
    rewarded(bonus, walk(a, b, c, episode=5))
    known = bonus.reward(walk(c, b, episode=5))
    new = bonus.reward(walk(c, b, episode=6))
    assert float(known) < 0.5 * float(new)
    rewarded(bonus, walk(c, b, a, episode=5, done=True))
    assert len(bonus.memory) == 0


def test_chunks_give_what_the_whole_episode_gives():
    points = [tuple(point) for point in np.random.default_rng(0).normal(size=(22, 2))]
    whole, parts = make(NGU), make(NGU)
    for bonus in (whole, parts):  # the same scale of observations for both
        bonus.dynamics.whiten.update(wander(99).obs)
    phi = whole.dynamics.embed(walk(*points))
    expected = whole._neighbors(walk(*points), *phi)
    found = []
    for start in (0, 7, 14):
        chunk = walk(*points[start : start + 8])
        before, after = parts.dynamics.embed(chunk)
        found.append(parts._neighbors(chunk, before, after))
        parts.memory.remember(chunk, before.__getitem__, after)
    torch.testing.assert_close(torch.cat(found), expected)


def test_of_a_long_episode_the_latest_states_are_remembered():
    memory = EpisodicMemory(per_episode=3)
    for episode in (1, 2):
        chunk = walk(*[(float(i), episode) for i in range(6)], episode=episode)
        memory.remember(chunk, chunk.obs.__getitem__, chunk.next_obs)
    ids, rows = memory.recall(walk((5.0, 1.0), (6.0, 1.0), episode=1), lambda rows: rows[:0])
    assert ids.tolist() == [1, 1, 1]
    assert rows[:, 0].tolist() == [3, 4, 5]
    assert len(memory) == 6


def test_two_chunks_of_an_episode_in_one_batch_follow_each_other():
    points = [tuple(point) for point in np.random.default_rng(0).normal(size=(9, 2))]
    bonus, other = make(NGU), walk((5, 5), (6, 6), (7, 7), episode=1)
    one, two = walk(*points[:5]), walk(*points[4:])
    between = Transitions(
        **{
            name: torch.cat([one.tensors()[name], other.tensors()[name], two.tensors()[name]])
            for name in one.tensors()
        }
    )
    bonus.dynamics.whiten.update(wander(99).obs)
    whole = bonus._neighbors(walk(*points), *bonus.dynamics.embed(walk(*points)))
    found = bonus._neighbors(between, *bonus.dynamics.embed(between))
    torch.testing.assert_close(torch.cat([found[:4], found[6:]]), whole)


@pytest.mark.parametrize(("times", "factor"), [(-3.0, 1.0), (0.5, 1.5), (100.0, 5.0)])
def test_life_long_novelty_is_the_error_in_deviations_from_one_to_five(times: float, factor: float):
    bonus, place = make(NGU, k=1), walk((0, 0), (1, 1))
    bonus.rnd.whiten.update(wander(64).obs)
    error = float(bonus.rnd.errors(place))
    deviation = 0.01 * error
    mean = error - times * deviation
    bonus.rnd.error_moments.update(torch.tensor([mean - deviation, mean + deviation]))
    episodic = bonus._episodic(bonus._neighbors(place, *bonus.dynamics.embed(place)))
    np.testing.assert_allclose(bonus.reward(place), factor * episodic, rtol=1e-3)
    assert bonus.metrics()["ngu_lifelong"] == pytest.approx(factor, rel=1e-3)


# MaxRényi


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
