"""Rényi entropy of discrete distributions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from rllib_rise.errors import ConfigError, NonFiniteError

FloatArray = NDArray[np.float64]

_SUM_TOLERANCE = 1e-6
# Around the order 1 the sum is near 1, and its logarithm would lose its digits.
_NEAR_SHANNON = 0.5


def discrete_renyi_entropy(p: ArrayLike, alpha: float) -> FloatArray:
    """The Rényi entropy of order alpha, in nats:

        H_alpha(p) = log(sum_i p_i^alpha) / (1 - alpha).

    Order 0 is the logarithm of the number of outcomes with p_i > 0, order 1 Shannon's entropy
    -sum_i p_i log p_i (the limit), infinity -log max_i p_i.

    Args:
        p: Distributions [..., n]; each row is not negative and sums to 1.
        alpha: The order, not negative; `math.inf` is one.

    Returns:
        Entropies [...].

    Raises:
        ConfigError: A row is no distribution, or the order is negative.
        NonFiniteError: NaN or infinity among the probabilities.
    """
    values = checked_distributions(p)
    if not alpha >= 0:
        raise ConfigError(f"alpha={alpha!r} must not be negative")
    if alpha == 0:
        return np.log(np.count_nonzero(values, axis=-1))
    if alpha == 1:
        return -xlogy(values, values).sum(axis=-1)
    if np.isinf(alpha):
        return -np.log(values.max(axis=-1))
    if abs(alpha - 1) > _NEAR_SHANNON:
        # Divided by the largest, so that a large order does not underflow.
        top = values.max(axis=-1, keepdims=True)
        total = np.log(((values / top) ** alpha).sum(axis=-1)) + alpha * np.log(top[..., 0])
        return total / (1 - alpha)
    # p^alpha = p + p (p^(alpha-1) - 1), and the first terms sum to 1.
    logs = np.log(np.where(values > 0, values, 1.0))
    return np.log1p((values * np.expm1((alpha - 1) * logs)).sum(axis=-1)) / (1 - alpha)


def checked_distributions(p: ArrayLike) -> FloatArray:
    """As float64 [..., n], each row divided by its sum, which must be near 1."""
    values = np.asarray(p, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ConfigError(f"p has the shape {values.shape}: pass probabilities [..., n], n >= 1")
    if not np.isfinite(values).all():
        raise NonFiniteError("p holds NaN or infinite values")
    if (values < 0).any():
        raise ConfigError(f"p holds a negative probability, {values.min():.3g}")
    totals = values.sum(axis=-1, keepdims=True)
    if (abs(totals - 1) > _SUM_TOLERANCE).any():
        worst = totals.flat[abs(totals - 1).argmax()]
        raise ConfigError(f"p sums to {worst:.6g} and not to 1")
    return values / totals
