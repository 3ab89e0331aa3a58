"""Entropy estimates against closed forms, and the formula against scipy's special functions."""

import functools
import math

import numpy as np
import pytest
import torch
from scipy.special import digamma, gamma

from rllib_rise.entropy import (
    kth_neighbor_distance,
    renyi_entropy,
    renyi_entropy_from_distances,
)
from rllib_rise.errors import ConfigError, NonFiniteError


def gaussian(n: int, m: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(n: int, m: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussian_entropy(alpha: float, m: int, sigma: float) -> float:
    order_term = 1.0 if alpha == 1 else math.log(alpha) / (alpha - 1)
    return m / 2 * (math.log(2 * math.pi * sigma**2) + order_term)


@functools.cache
def unit_distances(kind: str, m: int) -> torch.Tensor:
    draw = gaussian if kind == "gaussian" else uniform
    return kth_neighbor_distance(draw(4000, m), 5)


# Tolerances: over twelve seeds the largest deviations were .12, .06 and .08 for the three orders
# (order .5 misses part of the tails: bias -.08 at m = 2), and .06 for the uniform density, whose
# borders bias it by up to .03.
@pytest.mark.parametrize("sigma", [0.01, 3.0])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize(("alpha", "tolerance"), [(0.5, 0.15), (1.0, 0.1), (2.0, 0.12)])
def test_gaussian_entropy_matches_the_closed_form(alpha, tolerance, m, sigma):
    rho = unit_distances("gaussian", m) * sigma
    estimate = renyi_entropy_from_distances(rho, alpha=alpha, k=5, dimension=m)
    assert abs(float(estimate) - gaussian_entropy(alpha, m, sigma)) < tolerance


@pytest.mark.parametrize("side", [0.1, 20.0])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_uniform_entropy_is_the_log_volume_for_every_order(alpha, m, side):
    rho = unit_distances("uniform", m) * side
    estimate = renyi_entropy_from_distances(rho, alpha=alpha, k=5, dimension=m)
    assert abs(float(estimate) - m * math.log(side)) < 0.08


@pytest.mark.parametrize("backend", ["faiss", "torch"])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_entropy_of_points_matches_the_closed_form(alpha, backend):
    x = 3 * gaussian(2000, 1).float() + 100
    estimate = float(renyi_entropy(x, alpha=alpha, k=5, backend=backend))
    assert abs(estimate - gaussian_entropy(alpha, 1, 3.0)) < 0.12


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 0.9, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("m", [1, 3, 6])
def test_estimate_is_the_printed_formula(alpha, m):
    k, rho = 4, np.random.default_rng(0).uniform(0.2, 2.0, size=50)
    ball = math.pi ** (m / 2) / gamma(m / 2 + 1)
    if alpha == 1:
        expected = math.log(49) + math.log(ball) - digamma(k) + m * np.log(rho).mean()
    else:
        constant = (gamma(k) / gamma(k + 1 - alpha)) ** (1 / (1 - alpha))
        integral = ((49 * ball * constant * rho**m) ** (1 - alpha)).mean()
        expected = math.log(integral) / (1 - alpha)
    found = renyi_entropy_from_distances(torch.from_numpy(rho), alpha=alpha, k=k, dimension=m)
    assert float(found) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_entropy_of_points_is_that_of_their_distances():
    x = gaussian(200, 3).float()
    rho = kth_neighbor_distance(x, 4)
    direct = renyi_entropy(x, alpha=0.3, k=4)
    assert torch.equal(direct, renyi_entropy_from_distances(rho, alpha=0.3, k=4, dimension=3))
    assert direct.dtype == torch.float64
    assert direct.ndim == 0


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("m", [1, 8, 128])
def test_estimate_is_continuous_at_order_one(m, k):
    rho = kth_neighbor_distance(gaussian(300, m), k)

    def entropy(alpha: float) -> float:
        return float(renyi_entropy_from_distances(rho, alpha=alpha, k=k, dimension=m))

    for alpha in (1 - 1e-5, 1 - 1e-6, 1 - 1e-7, 1 + 1e-7, 1 + 1e-6, 1 + 1e-5):
        # The slope in alpha is half the variance of the log density: some tens at m = 128.
        assert entropy(alpha) == pytest.approx(entropy(1.0), abs=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.9, 1.0, 2.0])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_estimate_is_finite_in_512_dimensions(alpha, scale):
    x = gaussian(64, 512).float() * scale
    found = float(renyi_entropy(x, alpha=alpha, k=3))
    assert math.isfinite(found)
    unit = float(renyi_entropy(gaussian(64, 512).float(), alpha=alpha, k=3))
    assert found == pytest.approx(unit + 512 * math.log(scale), rel=1e-5, abs=1e-2)


def test_duplicates_add_nothing_below_order_one_and_give_minus_infinity_from_it_on():
    rho = torch.tensor([0.0, 1.0, 2.0])
    rest = 0.5 * math.log(2 * 2 * 1.0), 0.5 * math.log(2 * 2 * 2.0)
    constant = gamma(1) / gamma(1.5)
    expected = math.log((math.exp(rest[0]) + math.exp(rest[1])) / 3 * constant) / 0.5
    found = renyi_entropy_from_distances(rho, alpha=0.5, k=1, dimension=1)
    assert float(found) == pytest.approx(expected, rel=1e-12)
    for alpha in (1.0, 1.5):
        assert renyi_entropy_from_distances(rho, alpha=alpha, k=1, dimension=1) == -math.inf
    for alpha in (0.0, 0.5, 1.0, 1.5):
        zeros = renyi_entropy_from_distances(torch.zeros(5), alpha=alpha, k=1, dimension=3)
        assert zeros == -math.inf


@pytest.mark.parametrize("alpha", [-0.1, math.nan, math.inf])
def test_orders_that_do_not_exist_are_refused(alpha):
    with pytest.raises(ConfigError, match="alpha="):
        renyi_entropy(gaussian(10, 2), alpha=alpha, k=1)


def test_order_above_one_needs_enough_neighbours():
    with pytest.raises(ConfigError, match="k > alpha - 1"):
        renyi_entropy(gaussian(10, 2), alpha=3.0, k=2)
    assert math.isfinite(renyi_entropy(gaussian(10, 2), alpha=3.0, k=3))


@pytest.mark.parametrize(("n", "k", "match"), [(5, 5, "k=5"), (1, 1, "2 points"), (5, 0, "k=0")])
def test_too_few_points_or_neighbours_are_refused(n, k, match):
    with pytest.raises(ConfigError, match=match):
        renyi_entropy(gaussian(n, 2), alpha=0.5, k=k)


def test_distances_that_are_none_are_refused():
    for bad in (torch.tensor([1.0, -1.0]), torch.ones(2, 2)):
        with pytest.raises(ConfigError, match="rho"):
            renyi_entropy_from_distances(bad, alpha=0.5, k=1, dimension=1)
    with pytest.raises(NonFiniteError, match="1 NaN"):
        renyi_entropy_from_distances(torch.tensor([1.0, math.nan]), alpha=0.5, k=1, dimension=1)
    with pytest.raises(ConfigError, match="dimension=0"):
        renyi_entropy_from_distances(torch.ones(3), alpha=0.5, k=1, dimension=0)
