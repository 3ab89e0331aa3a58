"""Discrete Rényi entropies against closed forms and scipy."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rllib_rise.errors import ConfigError, NonFiniteError
from rllib_rise.tabular import discrete_renyi_entropy

ORDERS = (0, 0.1, 0.5, 0.9, 0.999999, 1, 1.000001, 1.5, 2, 50, 2000, math.inf)
weights = st.lists(st.floats(1e-12, 1), min_size=2, max_size=12)


def distribution(values: list[float]) -> np.ndarray:
    return np.array(values) / np.sum(values)


@pytest.mark.parametrize("alpha", ORDERS)
def test_uniform_distributions_have_the_logarithm_of_their_size(alpha: float):
    p = np.zeros((2, 7))
    p[0] = 1 / 7
    p[1, :4] = 1 / 4
    assert discrete_renyi_entropy(p, alpha) == pytest.approx([math.log(7), math.log(4)], rel=1e-12)


def test_closed_forms():
    p = [0.5, 0.25, 0.25, 0]
    assert discrete_renyi_entropy(p, 2) == pytest.approx(-math.log(0.375))
    assert discrete_renyi_entropy(p, 0.5) == pytest.approx(2 * math.log(math.sqrt(0.5) + 1))
    assert discrete_renyi_entropy(p, 0) == pytest.approx(math.log(3))
    assert discrete_renyi_entropy(p, math.inf) == pytest.approx(math.log(2))
    assert discrete_renyi_entropy([1.0, 0.0], 0.3) == 0


@given(weights)
def test_order_one_is_shannons_and_its_neighbours_are_near(values: list[float]):
    p = distribution(values)
    shannon = stats.entropy(p)
    assert discrete_renyi_entropy(p, 1) == pytest.approx(shannon, abs=1e-12)
    for alpha in (1 - 1e-9, 1 + 1e-9):
        assert discrete_renyi_entropy(p, alpha) == pytest.approx(shannon, abs=1e-6)


@given(weights)
def test_entropy_falls_with_the_order(values: list[float]):
    p = distribution(values)
    found = [float(discrete_renyi_entropy(p, alpha)) for alpha in ORDERS]
    assert all(low <= high + 1e-9 for high, low in pairwise(found))
    assert found[0] <= math.log(len(p)) + 1e-12


@pytest.mark.parametrize(
    ("p", "alpha", "error"),
    [
        ([0.5, 0.6], 0.5, ConfigError),
        ([1.5, -0.5], 0.5, ConfigError),
        ([0.5, 0.5], -1, ConfigError),
        ([], 0.5, ConfigError),
        ([math.nan, 1], 0.5, NonFiniteError),
    ],
)
def test_what_is_no_distribution_is_refused(p: list[float], alpha: float, error: type[Exception]):
    with pytest.raises(error):
        discrete_renyi_entropy(p, alpha)
