"""How long it takes to see every state, if states are drawn independently."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from rllib_rise.tabular.entropies import FloatArray, checked_distributions

_LOWEST = math.log(1e-18)
_TAIL = 42.0  # exp of its negative is below the last digit
_ROWS = 2**10
_NEVER = 1e-300


def expected_cover_time(p: ArrayLike) -> FloatArray:
    """The expected number of draws until every outcome was seen (the coupon collector's):

        E[T] = integral from 0 to infinity of 1 - prod_i (1 - exp(-p_i t)) dt,

    Eq. (2) of the paper. Equal to the sum by inclusion and exclusion,
    sum_S (-1)^(|S|+1) / (sum of p over S), whose 2^n terms cancel; this has neither the terms nor
    the cancellation. With t = e^u the integrand dies out double exponentially on one side and
    exponentially on the other, and the trapezoidal rule is accurate to the last digits.

    Args:
        p: Distributions [..., n].

    Returns:
        Expected numbers of draws [...]; infinite where an outcome has probability 0, or one so
        small that nobody would live to see it (below 1e-300).
    """
    values = checked_distributions(p)
    rows = values.reshape(-1, values.shape[-1])
    found = np.full(len(rows), np.inf)
    possible = (rows > _NEVER).all(axis=1)
    parts = np.split(rows[possible], range(_ROWS, possible.sum(), _ROWS))
    found[possible] = np.concatenate([_integral(part) for part in parts])
    return found.reshape(values.shape[:-1])


def _integral(p: FloatArray) -> FloatArray:
    if not len(p):
        return np.empty(0)
    states = math.log(p.shape[1])
    highest = math.log((_TAIL + states) / p.min())
    # The integrand is analytic around the axis, in a strip that narrows as the fall from 1 to 0,
    # which takes about 1 in t p beyond log n, becomes steeper in u.
    step = 1 / (8 + 4 * states)
    total = np.zeros(len(p))
    for u in np.arange(_LOWEST, highest + step, step):
        t = math.exp(u)
        total += t * _unfinished(p * t)
    return step * total


def _unfinished(x: FloatArray) -> FloatArray:
    """1 - prod_i (1 - exp(-x_i)) along the last axis, without cancellation."""
    # log(1 - exp(-x)), by the forms that are accurate for small and for large x; one of the two
    # terms is that of x, the other that of log 2.
    half = math.log(2)
    small, large = np.minimum(x, half), np.maximum(x, half)
    with np.errstate(divide="ignore"):  # x may underflow to 0: surely unfinished
        seen = np.log(-np.expm1(-small)) + np.log1p(-np.exp(-large)) + half
    return -np.expm1(seen.sum(axis=-1))
