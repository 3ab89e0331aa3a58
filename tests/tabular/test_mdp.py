"""Finite processes: distributions and best policies, by definition and by trying all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rllib_rise.errors import ConfigError
from rllib_rise.tabular.mdp import FiniteMDP, deterministic_mdp, random_mdp


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.95])
def test_the_distribution_is_the_discounted_sum_over_time(gamma: float):
    mdp = random_mdp(6, 3, gamma=gamma, seed=1)
    policy = np.array([0, 1, 2, 0, 1, 2])
    kernel = mdp.transitions[np.arange(6), policy]
    state, total = mdp.start, np.zeros(6)
    for t in range(800):
        total += (1 - gamma) * gamma**t * state
        state = state @ kernel
    assert mdp.state_distribution(policy) == pytest.approx(total, abs=1e-12)
    assert mdp.state_distribution(policy).sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_policy_is_the_best_of_all(seed: int):
    mdp = random_mdp(5, 3, gamma=0.9, seed=seed)
    reward = np.random.default_rng(seed).normal(size=5)
    best = max(
        float(mdp.state_distribution(np.array(policy)) @ reward)
        for policy in product(range(3), repeat=5)
    )
    found = mdp.best_policy(reward)
    assert float(mdp.state_distribution(found) @ reward) == pytest.approx(best, abs=1e-10)
    again = mdp.best_policy(reward, found)
    assert (again == found).all()


def test_policies_that_are_equal_but_for_rounding_do_not_alternate():
    """With rounding taken for an improvement, some of these would go on for ever."""
    for seed in range(20):
        mdp = random_mdp(6, 2, gamma=0.99, seed=seed)
        # The second action does nearly what the first does, by sums in another order.
        noise = np.random.default_rng(seed).normal(size=mdp.transitions.shape[::2]) * 1e-16
        mdp.transitions[:, 1] = mdp.transitions[:, 0] + noise.clip(min=0)
        assert len(mdp.best_policy(np.random.default_rng(seed).normal(size=6) * 1e3)) == 6


def test_a_chain_goes_where_it_is_told():
    mdp = deterministic_mdp(np.array([[0, 1], [0, 2], [1, 2]]), start=0, gamma=0.5)
    assert mdp.state_distribution(np.array([1, 1, 1])) == pytest.approx([0.5, 0.25, 0.25])


@pytest.mark.parametrize(
    ("transitions", "start", "gamma"),
    [
        (np.full((2, 1, 2), 0.6), np.array([1.0, 0.0]), 0.9),
        (np.full((2, 1, 2), 0.5), np.array([0.5, 0.0]), 0.9),
        (np.full((2, 1, 2), 0.5), np.array([1.0, 0.0]), 1.0),
        (np.full((2, 1, 3), 1 / 3), np.array([1.0, 0.0]), 0.9),
    ],
)
def test_what_is_no_process_is_refused(transitions, start, gamma):
    with pytest.raises(ConfigError):
        FiniteMDP(transitions, start, gamma)
