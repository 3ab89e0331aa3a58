"""RIDE and NGU: what is new within an episode."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from rival_batches import make, rewarded, walk, wander

from rllib_rise.bonuses import (
    NGU,
    RIDE,
    Bonus,
    Transitions,
)
from rllib_rise.bonuses.episodes import EpisodicMemory, visits_so_far

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
    bonus = make(RIDE, lr=1e-12)
    rewarded(bonus, walk(a, b, a))
    goes_on = bonus.reward(walk(a, b, a))
    begins = bonus.reward(walk(a, b, a, episode=1))
    # The same steps, so the same impact: arrivals 2 and 3 there, 1 and 2 here.
    np.testing.assert_allclose(goes_on / begins, [2**-0.5, (2 / 3) ** 0.5], rtol=1e-5)
    rewarded(bonus, walk(a, b, done=True))
    assert len(bonus.memory) == 0


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


@pytest.mark.parametrize("cls", [NGU, RIDE])
def test_the_end_of_an_episode_is_the_end_of_that_one_only(cls: type[Bonus]):
    a, b, c = (0.0, 0.0), (1.0, 0.0), (0.0, 1.0)
    bonus, alone = make(cls), make(cls)
    rewarded(alone, walk(a, b, c, episode=1))
    rewarded(bonus, walk(a, b, c, episode=1))
    rewarded(bonus, walk(a, b, episode=2, done=True))
    assert len(bonus.memory) == len(alone.memory) > 0


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
