"""MEPC: the mathematics by finite differences, the guarantee on random processes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from rllib_rise.errors import ConfigError, RiseError
from rllib_rise.tabular import mepc
from rllib_rise.tabular.mdp import random_mdp
from rllib_rise.tabular.mepc import (
    Oracles,
    PerturbedOracles,
    SmoothedEntropy,
    SmoothedShannon,
    largest_objective,
    smoothing_for,
)

orders = st.floats(0.05, 0.95)
smoothings = st.floats(0.01, 0.5)


def points(seed: int, number: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(5), size=number)


@given(orders, smoothings, st.integers(0, 100))
def test_the_gradient_is_that_of_the_objective(alpha: float, sigma: float, seed: int):
    objective, d = SmoothedEntropy(alpha, sigma), points(seed, 1)[0]
    step = 1e-6
    for state, change in enumerate(np.eye(5) * step):
        slope = (objective(d + change) - objective(d - change)) / (2 * step)
        assert objective.gradient(d)[state] == pytest.approx(slope, rel=1e-4, abs=1e-6)


@given(orders, smoothings, st.integers(0, 100))
def test_smoothness_and_bound_hold(alpha: float, sigma: float, seed: int):
    objective, (d, other) = SmoothedEntropy(alpha, sigma), points(seed, 2)
    change = abs(objective.gradient(d) - objective.gradient(other)).max()
    assert change <= objective.smoothness * abs(d - other).max() * (1 + 1e-9)
    assert objective.gradient(np.zeros(5)).max() == pytest.approx(objective.bound)
    assert objective.gradient(d).max() <= objective.bound


def test_both_constants_are_attained():
    objective = SmoothedEntropy(0.3, 0.05)
    tiny = np.array([1e-9])
    slope = (objective.gradient(np.zeros(1)) - objective.gradient(tiny)) / tiny
    assert slope[0] == pytest.approx(objective.smoothness, rel=1e-5)


def test_the_number_of_iterations_is_the_theorems():
    expected = 10 * 0.5 * 0.1**-1.5 / 0.2 * math.log(10 * 0.1**-0.5 / 0.2)
    assert SmoothedEntropy(0.5, 0.1).iterations(0.2) == pytest.approx(expected)


def test_the_smoothing_is_the_one_that_was_asked_for():
    sigma = smoothing_for(0.3, gap=0.05, num_states=7)
    assert SmoothedEntropy(0.3, sigma).smoothing_gap(7) == pytest.approx(0.05)
    d = np.eye(7)[0]
    excess = SmoothedEntropy(0.3, sigma)(d) - SmoothedEntropy(0.3, 1e-300)(d)
    assert 0 < excess <= 0.05


@pytest.mark.parametrize("alpha", [0.3, 0.7])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("perturbed", [False, True])
def test_the_guarantee_holds(alpha: float, seed: int, perturbed: bool):
    mdp = random_mdp(6, 3, gamma=0.9, seed=seed)
    sigma, epsilon = 0.2, 0.3
    objective = SmoothedEntropy(alpha, sigma)
    oracles = Oracles()
    if perturbed:
        oracles = PerturbedOracles(0.1 * epsilon, 0.1 * epsilon / objective.smoothness, seed=seed)
    found = mepc(mdp, alpha=alpha, sigma=sigma, epsilon=epsilon, oracles=oracles)
    _, best = largest_objective(mdp, objective, tolerance=1e-6)
    assert len(found.objectives) == math.ceil(objective.iterations(epsilon)) + 1
    assert found.objectives[-1] >= best - epsilon
    assert found.objectives[-1] <= best + 1e-9


def test_the_mixture_is_what_it_says():
    mdp = random_mdp(5, 2, gamma=0.8, seed=3)
    found = mepc(mdp, alpha=0.5, sigma=0.2, epsilon=0.5, iterations=40)
    assert found.weights.sum() == pytest.approx(1)
    each = np.array([mdp.state_distribution(policy) for policy in found.policies])
    assert found.weights @ each == pytest.approx(found.distribution, abs=1e-12)
    assert len({policy.tobytes() for policy in found.policies}) == len(found.policies)
    assert found.objectives[-1] == pytest.approx(SmoothedEntropy(0.5, 0.2)(found.distribution))


def test_perturbed_oracles_are_wrong_and_not_too_wrong():
    mdp = random_mdp(8, 3, gamma=0.9, seed=4)
    reward = np.random.default_rng(4).random(8)
    oracles = PerturbedOracles(0.02, 0.01, seed=0)
    best = mdp.state_distribution(mdp.best_policy(reward)) @ reward
    lost = [
        best - mdp.state_distribution(oracles.plan(mdp, reward, np.zeros(8, int))) @ reward
        for _ in range(10)
    ]
    assert 0 < max(lost) <= 0.02 + 1e-12
    d = np.full(8, 1 / 8)
    assert abs(oracles.estimate(d) - d) == pytest.approx(0.01)
    assert min(oracles.estimate(np.zeros(8)).min() for _ in range(10)) == 0


def test_too_few_rounds_are_told():
    with pytest.raises(RiseError, match="1 rounds did not come within"):
        largest_objective(
            random_mdp(6, 3, gamma=0.9, seed=0), SmoothedEntropy(0.5, 0.01), tolerance=0, rounds=1
        )


@given(smoothings, st.integers(0, 100))
def test_shannons_gradient_is_that_of_its_entropy(sigma: float, seed: int):
    objective, d = SmoothedShannon(sigma), points(seed, 1)[0]
    for state, change in enumerate(np.eye(5) * 1e-6):
        slope = (objective(d + change) - objective(d - change)) / 2e-6
        assert objective.gradient(d)[state] == pytest.approx(slope, rel=1e-4, abs=1e-6)
    assert SmoothedShannon(1e-12)(d) == pytest.approx(stats.entropy(d), abs=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_largest_objective_is_that_of_a_general_solver(seed: int):
    """The same over weights of all policies, which has no planning in it."""
    from itertools import product

    mdp, objective = random_mdp(4, 2, gamma=0.9, seed=seed), SmoothedEntropy(0.4, 0.05)
    corners = np.array([mdp.state_distribution(np.array(p)) for p in product((0, 1), repeat=4)])
    solved = optimize.minimize(
        lambda w: -objective(w @ corners),
        np.full(16, 1 / 16),
        jac=lambda w: -corners @ objective.gradient(w @ corners),
        bounds=[(0, 1)] * 16,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    d, upper = largest_objective(mdp, objective, tolerance=1e-7)
    assert upper >= -solved.fun - 1e-9
    assert objective(d) == pytest.approx(-solved.fun, abs=1e-6)


@pytest.mark.parametrize(("alpha", "sigma"), [(0, 0.1), (1, 0.1), (0.5, 0)])
def test_orders_and_smoothings_out_of_range_are_refused(alpha: float, sigma: float):
    with pytest.raises(ConfigError):
        SmoothedEntropy(alpha, sigma)
