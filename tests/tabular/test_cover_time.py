"""The coupon collector's expectation against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from rllib_rise.tabular import expected_cover_time


def by_inclusion_and_exclusion(weights: list[int]) -> Fraction:
    """sum over sets of outcomes of (-1)^(size+1) / (their probability), exactly."""
    whole, found = sum(weights), Fraction(0)
    for size in range(1, len(weights) + 1):
        for chosen in combinations(weights, size):
            found += (-1) ** (size + 1) * Fraction(whole, sum(chosen))
    return found


@pytest.mark.parametrize(("p", "expected"), [([1 / 3] * 3, 5.5), ([0.5, 0.3, 0.2], 6.654761904762)])
def test_known_values(p: list[float], expected: float):
    assert expected_cover_time(p) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("number", [1, 2, 3, 8, 15])
def test_it_agrees_with_inclusion_and_exclusion(number: int):
    rng = np.random.default_rng(number)
    for spread in (10, 10**6):
        weights = [int(w) for w in rng.integers(1, spread, size=number)]
        exact = float(by_inclusion_and_exclusion(weights))
        p = np.array(weights) / sum(weights)
        assert float(expected_cover_time(p)) == pytest.approx(exact, rel=1e-11, abs=1e-9)


def test_hundreds_of_states():
    for number in (100, 900):
        harmonic = math.fsum(1 / i for i in range(1, number + 1))
        found = float(expected_cover_time(np.full(number, 1 / number)))
        assert found == pytest.approx(number * harmonic, rel=1e-11)


def test_a_rare_state_costs_what_waiting_for_it_costs():
    for rare in (1e-6, 1e-12):
        p = np.full(301, (1 - rare) / 300)
        p[0] = rare
        # The others are seen long before: what is left is a geometric time.
        assert float(expected_cover_time(p)) == pytest.approx(1 / rare, rel=2e-3)


def test_a_state_that_never_comes_takes_for_ever():
    found = expected_cover_time([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
    assert found[0] == math.inf
    assert expected_cover_time([1 - 1e-305, 1e-305]) == math.inf
    assert found[1] == pytest.approx(float(by_inclusion_and_exclusion([1, 1, 2])))


def test_many_at_once():
    p = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 700))
    found = expected_cover_time(p)
    assert found.shape == (3, 700)
    assert found[2, 699] == pytest.approx(float(expected_cover_time(p[2, 699])), rel=1e-12)
