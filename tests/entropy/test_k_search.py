"""The search for k against a plain computation of its criterion."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import gamma

from rllib_rise.entropy import search_k
from rllib_rise.errors import ConfigError, NonFiniteError


def brute_force(x: torch.Tensor, alpha: float, k_max: int, num_subsets: int, seed: int):
    """delta_k as printed, in plain numbers; the deal of points is the documented one."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).numpy()
    size = len(x) // num_subsets
    m = x.shape[1]
    ball = math.pi ** (m / 2) / gamma(m / 2 + 1)
    points = x.double().numpy()
    integrals = np.empty((num_subsets, k_max))
    for j in range(num_subsets):
        part = points[order[j * size : (j + 1) * size]]
        matrix = cdist(part, part)
        np.fill_diagonal(matrix, np.inf)
        matrix.sort(axis=1)
        for k in range(1, k_max + 1):
            c_k = (gamma(k) / gamma(k + 1 - alpha)) ** (1 / (1 - alpha))
            volumes = (size - 1) * ball * c_k * matrix[:, k - 1] ** m
            integrals[j, k - 1] = np.mean(volumes ** (1 - alpha))
    return integrals.max(0) / integrals.min(0)


@pytest.mark.parametrize("distribution", ["gaussian", "uniform"])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 1.5])
@pytest.mark.parametrize("dimension", [1, 2, 6])
def test_pick_and_curve_equal_the_brute_force_criterion(distribution, alpha, dimension):
    generator = torch.Generator().manual_seed(dimension)
    draw = torch.randn if distribution == "gaussian" else torch.rand
    x = draw(803, dimension, generator=generator, dtype=torch.float64)
    expected = brute_force(x, alpha, 15, 8, seed=3)

    found = search_k(x, alpha=alpha, seed=3)

    np.testing.assert_allclose(found.ratios, expected, rtol=1e-9)
    assert found.k == int(np.argmin(expected)) + 1


def test_pick_is_the_most_consistent_not_the_least():
    x = torch.randn(800, 2, generator=torch.Generator().manual_seed(0))
    found = search_k(x, alpha=0.5)
    assert found.k is not None
    assert found.ratios[found.k - 1] == min(found.ratios)
    assert min(found.ratios) >= 1
    assert min(found.ratios) < max(found.ratios)


def test_curve_does_not_depend_on_the_unit_of_length():
    x = torch.randn(800, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    first, second = search_k(x, alpha=0.1), search_k(1000 * x, alpha=0.1)
    np.testing.assert_allclose(first.ratios, second.ratios, rtol=1e-9)


def test_bytes_give_the_same_curve_as_floats():
    x = torch.randint(0, 256, (800, 12), generator=torch.Generator().manual_seed(1))
    as_bytes = search_k(x.to(torch.uint8), alpha=0.1)
    np.testing.assert_allclose(as_bytes.ratios, search_k(x.double(), alpha=0.1).ratios, rtol=1e-5)


def test_hundreds_of_dimensions_stay_finite():
    x = torch.randn(400, 700, generator=torch.Generator().manual_seed(0))
    assert all(math.isfinite(ratio) for ratio in search_k(x, alpha=0.5).ratios)


def test_shannon_compares_entropies():
    x = torch.randn(800, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = search_k(x, alpha=1.0)
    near = search_k(x, alpha=1 - 1e-4)
    # near 1, delta^(1/(1 - alpha)) tends to the ratio of exp(H)
    np.testing.assert_allclose(np.log(near.ratios) / 1e-4, np.log(exact.ratios), rtol=1e-2)


def test_same_seed_same_deal_other_seed_other_deal():
    x = torch.randn(800, 2, generator=torch.Generator().manual_seed(0))
    assert search_k(x, alpha=0.5, seed=1) == search_k(x, alpha=0.5, seed=1)
    assert search_k(x, alpha=0.5, seed=1) != search_k(x, alpha=0.5, seed=2)


def test_degenerate_subsets_rank_last():
    # Every point three times: the first and second neighbour are at distance 0 unless the deal
    # parts them. One subset in which all are equal makes small k infinite.
    x = torch.randn(800, 2, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(800, generator=torch.Generator().manual_seed(0))
    first = order[:100]
    x[first] = x[first[0]].clone()
    x[first[:8]] += torch.arange(8)[:, None] * 10.0  # eight apart, ninety-two equal
    found = search_k(x, alpha=0.1, k_max=15)
    assert found.k is not None
    assert all(math.isfinite(ratio) for ratio in found.ratios)  # the eight give I > 0
    x[first] = x[first[0]].clone()
    found = search_k(x, alpha=0.1, k_max=15)
    assert all(math.isinf(ratio) for ratio in found.ratios)
    assert found.k is None


def test_an_infinite_ratio_never_wins_over_a_finite_one():
    # Pairs of equal points within every subset: k = 1 has rho = 0 everywhere.
    order = torch.randperm(800, generator=torch.Generator().manual_seed(0))
    x = torch.empty(800, 2)
    for rows in order.split(100):
        half = torch.randn(50, 2, generator=torch.Generator().manual_seed(int(rows[0])))
        x[rows] = torch.cat([half, half])
    found = search_k(x, alpha=0.1)
    assert math.isinf(found.ratios[0])
    assert found.k is not None
    assert found.k > 1


def test_k_min_and_orders_above_one_leave_small_k_out():
    x = torch.randn(800, 2, generator=torch.Generator().manual_seed(0))
    found = search_k(x, alpha=0.1, k_max=4, k_min=4)
    assert found.k == 4
    found = search_k(x, alpha=3.0, k_max=6)
    assert [math.isinf(ratio) for ratio in found.ratios] == [True, True] + 4 * [False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k_max": 0}, "k=0"),
        ({"num_subsets": 1}, "num_subsets=1"),
        ({"num_subsets": 2.5}, "num_subsets=2.5"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**64}, "seed="),
        ({"seed": True}, "seed=True"),
        ({"alpha": None}, "alpha=None"),
        ({"alpha": -1.0}, "alpha"),
        ({"k_min": 16}, "k_min=16"),
        ({"k_max": 100}, "collect more"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        search_k(torch.randn(800, 2), **{"alpha": 0.5, **arguments})


def test_nan_is_refused():
    x = torch.randn(800, 2)
    x[17, 1] = math.nan
    with pytest.raises(NonFiniteError):
        search_k(x, alpha=0.5)
