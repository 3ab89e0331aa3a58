"""The search for k: the paper's Algorithm 2."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rllib_rise.entropy.estimators import SHANNON_WIDTH, check_order, renyi_entropy_from_distances
from rllib_rise.entropy.neighbors import check_k, neighbor_distances
from rllib_rise.errors import ConfigError


@dataclass(frozen=True)
class KSearch:
    """The outcome of a search.

    Attributes:
        k: The neighbour whose estimates agree best, or None where no k gave an estimate on every
            subset (too many duplicates).
        ratios: delta_k for k = 1, 2, ..., k_max; infinite where a subset is degenerate.
    """

    k: int | None
    ratios: tuple[float, ...]


def search_k(
    x: Tensor,
    *,
    alpha: float,
    k_max: int = 15,
    num_subsets: int = 8,
    seed: int = 0,
    k_min: int = 1,
    backend: str = "auto",
) -> KSearch:
    """The k whose estimates of the same entropy differ least between parts of a sample.

    The points are dealt at random into J subsets of equal size. With I_jk the k-NN estimate on
    subset j of I = integral of f^alpha (see `renyi_entropy_from_distances`),

        delta_k = max_j I_jk / min_j I_jk >= 1,    k* = argmin_k delta_k, the smallest of equals.

    At alpha = 1, where I is 1 for every density, exp(H) takes its place. Ratios are differences of
    logarithms and so stay finite in any dimension.

    The criterion sees the estimator's variance alone, which falls with k, not its bias, which
    grows: it leans to large k. A subset without an estimate (all k-th neighbours at distance 0;
    for alpha >= 1 a single one suffices; k <= alpha - 1) makes delta_k infinite.

    Args:
        x: Points [N, m], N >= (k_max + 1) num_subsets; up to num_subsets - 1 of them are left out.
        alpha: Order of the entropy, at least 0.
        k_max: The largest k that is tried.
        num_subsets: J, at least 2.
        seed: How the points are dealt.
        k_min: The smallest k that may win.
        backend: As in `neighbor_distances`.

    Returns:
        The k and the whole curve.

    Raises:
        ConfigError: An argument is out of its range, or there are too few points.
        NonFiniteError: `x` holds NaN or infinity.
    """
    check_k(k_max)
    check_k(k_min)
    check_order(alpha)
    if k_min > k_max:
        raise ConfigError(f"k_min={k_min} is above k_max={k_max}")
    if isinstance(num_subsets, bool) or not isinstance(num_subsets, int) or num_subsets < 2:
        raise ConfigError(
            f"num_subsets={num_subsets!r} must be an integer of at least 2: estimates are compared"
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ConfigError(f"seed={seed!r} must be an integer from 0 to 2^63 - 1")
    if x.ndim != 2:
        raise ConfigError(f"x has shape {tuple(x.shape)}; pass points [N, m]")
    size = len(x) // num_subsets
    if size <= k_max:
        raise ConfigError(
            f"a search up to k_max={k_max} in {num_subsets} subsets needs at least "
            f"{num_subsets * (k_max + 1)} points and got {len(x)}; collect more, or lower k_max"
        )
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
    logs = torch.stack(
        [
            _log_estimates(x[rows], alpha, k_max, backend)
            for rows in order[: size * num_subsets].split(size)
        ]
    )
    ratios = _ratios(logs)
    best = min(range(k_min, k_max + 1), key=lambda k: ratios[k - 1])
    return KSearch(k=best if math.isfinite(ratios[best - 1]) else None, ratios=ratios)


def _log_estimates(points: Tensor, alpha: float, k_max: int, backend: str) -> Tensor:
    """Log I (log exp(H) at alpha = 1) for k = 1..k_max; -inf where there is no estimate."""
    distances = neighbor_distances(points, k_max, backend=backend)
    scale = 1.0 if abs(1 - alpha) < SHANNON_WIDTH else 1 - alpha
    logs = torch.full((k_max,), -math.inf, dtype=torch.float64)
    for k in range(1, k_max + 1):
        if alpha > 1 and k <= alpha - 1:
            continue
        entropy = renyi_entropy_from_distances(
            distances[:, k - 1], alpha=alpha, k=k, dimension=points.shape[1]
        )
        if bool(entropy.isfinite()):
            logs[k - 1] = scale * float(entropy)
    return logs


def _ratios(logs: Tensor) -> tuple[float, ...]:
    spread = logs.amax(0) - logs.amin(0)
    usable = logs.isfinite().all(0)
    return tuple(torch.where(usable, spread.exp(), torch.full_like(spread, math.inf)).tolist())
