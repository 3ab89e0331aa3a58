"""Rényi and Shannon entropy of a sample from its nearest-neighbour distances."""

import math
import sys
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from rllib_rise.entropy.neighbors import check_k, kth_neighbor_distance
from rllib_rise.errors import ConfigError, NonFiniteError

SHANNON_WIDTH = 1e-6
"""Orders closer to 1 than this are treated as 1, where the Rényi formulas are 0/0."""


def renyi_entropy(x: Tensor, *, alpha: float, k: int, backend: str = "auto") -> Tensor:
    """Differential Rényi entropy of the density that the points were drawn from, in nats.

    See `renyi_entropy_from_distances` for the estimator.

    Args:
        x: Points [N, m], N > k.
        alpha: Order, at least 0; 1 is the Shannon entropy.
        k: Neighbour to use, counting other points only.
        backend: As in `neighbor_distances`.

    Returns:
        0-d float64 tensor.

    Raises:
        ConfigError: alpha or k is out of its range, or N <= k.
        NonFiniteError: `x` holds NaN or infinity.
    """
    if x.ndim == 2:
        _check(alpha, k, x.shape[0])
    rho = kth_neighbor_distance(x, k, backend=backend)
    return renyi_entropy_from_distances(rho, alpha=alpha, k=k, dimension=x.shape[1])


def renyi_entropy_from_distances(rho: Tensor, *, alpha: float, k: int, dimension: int) -> Tensor:
    """The estimator on distances that are already there.

        H = log(I) / (1 - alpha),
        I = 1/N sum_i [(N - 1) V_m C_k rho_i^m]^(1 - alpha),
        C_k = [Gamma(k) / Gamma(k + 1 - alpha)]^(1 / (1 - alpha)),

    with V_m = pi^(m/2) / Gamma(m/2 + 1), the volume of the unit ball. At alpha = 1 its limit is
    Kozachenko and Leonenko's estimator,

        H = log(N - 1) + log V_m - psi(k) + m/N sum_i log rho_i.

    All of it is computed in log space: rho^m and V_m leave the range of float64 near m = 340.

    Distances of 0 (duplicates) contribute nothing to I for alpha < 1; for alpha >= 1 a single one
    makes the estimate -inf, as the sample then has an atom. It is -inf for every order if all
    distances are 0.

    Args:
        rho: Distance of every point to its k-th nearest other point [N], N > k.
        alpha: Order, at least 0. Above 1 it needs k > alpha - 1 for I to be finite, and
            k > 2 (alpha - 1) for a finite variance.
        k: The neighbour that `rho` belongs to.
        dimension: m, the dimension of the points.

    Returns:
        0-d float64 tensor on the device of `rho`.

    Raises:
        ConfigError: An argument is out of its range.
        NonFiniteError: `rho` holds NaN or infinity.
    """
    if rho.ndim != 1:
        raise ConfigError(f"rho has shape {tuple(rho.shape)}; pass one distance per point, [N]")
    num_points = rho.shape[0]
    _check(alpha, k, num_points)
    if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
        raise ConfigError(f"dimension={dimension!r} must be an integer of at least 1")
    rho = rho.detach().double()
    if not bool(rho.isfinite().all()):
        raise NonFiniteError(
            f"rho holds {int(num_points - rho.isfinite().sum())} NaN or infinite distances of "
            f"{num_points}; check the points that they come from"
        )
    if bool((rho < 0).any()):
        raise ConfigError("rho holds negative values; pass distances, not their logarithms")
    log_ball = dimension / 2 * math.log(math.pi) - math.lgamma(dimension / 2 + 1)
    log_volumes = math.log(num_points - 1) + log_ball + dimension * rho.log()
    order_gap = 1 - alpha
    if abs(order_gap) < SHANNON_WIDTH:
        return log_volumes.mean() - torch.special.digamma(rho.new_tensor(float(k)))
    log_constant = math.lgamma(k) - math.lgamma(k + order_gap)
    log_integral = (
        torch.logsumexp(order_gap * log_volumes, dim=0) - math.log(num_points) + log_constant
    )
    return log_integral / order_gap


def check_order(alpha: float) -> None:
    """Raises ConfigError unless `alpha` is the order of an entropy."""
    if not is_finite_number(alpha) or alpha < 0:
        raise ConfigError(f"alpha={alpha!r} must be a finite number of at least 0")


def is_finite_number(value: Any) -> bool:
    """Whether this is a real number that a float can hold; integers may be too large for one."""
    return isinstance(value, Real) and abs(value) <= sys.float_info.max  # type: ignore[operator]


def _check(alpha: float, k: int, num_points: int) -> None:
    check_order(alpha)
    check_k(k)
    if num_points < 2:
        raise ConfigError(f"an entropy needs at least 2 points and got {num_points}")
    if k >= num_points:
        raise ConfigError(
            f"k={k} needs at least {k + 1} points and got {num_points}; lower k or add points"
        )
    if alpha > 1 and k <= alpha - 1:
        raise ConfigError(
            f"alpha={alpha} needs k > alpha - 1 = {alpha - 1:g} and k is {k}; raise k or lower "
            "alpha"
        )
