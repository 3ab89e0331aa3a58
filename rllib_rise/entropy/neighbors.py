"""Distances to the k nearest other points: the public functions."""

import math

import torch
from torch import Tensor

from rllib_rise.entropy.backends import resolve_backend
from rllib_rise.entropy.certified_search import nearest_distances
from rllib_rise.entropy.grouping import Groups, Stack, group_points
from rllib_rise.errors import ConfigError, NonFiniteError

LARGEST_K = 2**16


def neighbor_distances(
    x: Tensor, k: int, *, groups: Tensor | Groups | None = None, backend: str = "auto"
) -> Tensor:
    """Euclidean distances to the 1st..k-th nearest other points.

    Column j - 1 of row i is rho_{i,j}, the distance from x_i to the j-th nearest of the points
    with another index. A point is never its own neighbour, a duplicate of it is one at distance
    exactly 0. All distances are exact to the precision of the result.

    Where a group (or the whole set) has n - 1 < k other points, the missing columns repeat the
    largest available distance, so the last column is the distance to the (n-1)-th neighbour; a
    lone point gets 0. `has_k_others` tells which points that concerns.

    Args:
        x: Points [N, m], N >= 0, m >= 1. Half precision and integers are converted to float32.
        k: How many neighbours, counting other points only.
        groups: Integer labels [N], or what `group_points` made of them; only points of the same
            label are neighbours. None is one group.
        backend: One of `BACKENDS`; see `resolve_backend`. It affects speed and the last digits
            only.

    Returns:
        Distances [N, k], ascending in each row, without gradient, on the device of `x`; float64
        for float64 points, else float32. Distances beyond the dtype's range saturate; float64
        distances below 1e-150 of their group's radius may come out as 0.

    Raises:
        ConfigError: An argument has the wrong shape, type or value.
        NonFiniteError: `x` holds NaN or infinity.
        MissingExtraError: The backend asked for is not installed.
    """
    check_k(k)
    points = _checked_points(x)
    layout = _layout(len(points), groups)
    largest = max(layout.sizes, default=0)
    chosen = resolve_backend(backend, points.device, num_points=largest)
    if torch.is_autocast_enabled(points.device.type):  # the products would be of half precision
        with torch.autocast(points.device.type, enabled=False):
            return _all_distances(points, k, layout, chosen).to(x.device)
    return _all_distances(points, k, layout, chosen).to(x.device)


def kth_neighbor_distance(
    x: Tensor, k: int, *, groups: Tensor | Groups | None = None, backend: str = "auto"
) -> Tensor:
    """The last column of `neighbor_distances`: rho_i, the distance to the k-th other point.

    Args:
        x: Points [N, m].
        k: Which neighbour, counting other points only.
        groups: As in `neighbor_distances`.
        backend: As in `neighbor_distances`.

    Returns:
        Distances [N].
    """
    return neighbor_distances(x, k, groups=groups, backend=backend)[:, -1]


def has_k_others(num_points: int, k: int, groups: Tensor | Groups | None = None) -> Tensor:
    """Which points have at least k others to choose from; the k of the rest is clipped.

    Args:
        num_points: N.
        k: The neighbour asked for.
        groups: As in `neighbor_distances`.

    Returns:
        Booleans [N], on the CPU.
    """
    check_k(k)
    return _layout(num_points, groups).has_more_than(k)


def check_k(k: int) -> None:
    """Raises ConfigError unless `k` is an integer of at least 1 that leaves memory for points."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ConfigError(f"k={k!r} must be an integer of at least 1: it counts other points")
    if k > LARGEST_K:
        raise ConfigError(f"k={k} must be at most {LARGEST_K}: every point gets k distances")


def _layout(num_points: int, groups: Tensor | Groups | None) -> Groups:
    if not isinstance(groups, Groups):
        return group_points(num_points, groups)
    if sum(groups.sizes) != num_points:
        raise ConfigError(
            f"groups are those of {sum(groups.sizes)} points, and there are {num_points}"
        )
    return groups


def _checked_points(x: Tensor) -> Tensor:
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] == 0 or x.is_complex():
        found = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
        raise ConfigError(
            f"x is {found}; pass a real tensor [N, m] with m >= 1, flattening observations first"
        )
    points = x.detach()
    if points.device.type == "mps":  # which has no float64
        points = points.cpu()
    if points.dtype != torch.float64:
        points = points.float()
    # A sum is fast and finite only if all are; it may overflow where they are.
    if not math.isfinite(float(points.sum())) and not bool(points.isfinite().all()):
        bad = int(points.numel() - points.isfinite().sum())
        raise NonFiniteError(
            f"x holds {bad} NaN or infinite values of {points.numel()}; check the observations and "
            "the encoder that produced it"
        )
    return points.contiguous()


def _all_distances(points: Tensor, k: int, layout: Groups, backend: str) -> Tensor:
    distances: Tensor | None = None
    for stack in layout.stacks(points):
        nearest = _distances(stack, k, backend)
        if stack.rows is None:
            return nearest
        if distances is None:
            distances = nearest.new_empty(points.shape[0], k)
        own = stack.own_points()
        rows = stack.rows.flatten()
        if own is not None:
            rows, nearest = rows[own.flatten()], nearest[own.flatten()]
        distances[rows] = nearest
    return points.new_zeros(0, k) if distances is None else distances


def _distances(stack: Stack, k: int, backend: str) -> Tensor:
    """Distances [g n, k] of a stack; what a set does not have repeats what it has."""
    num_sets, num_points, _ = stack.points.shape
    dtype, reach = stack.points.dtype, min(k, num_points - 1)
    if reach < 1:
        return stack.points.new_zeros(num_sets * num_points, k)
    nearest = nearest_distances(stack, reach, backend)
    if nearest.dtype == torch.float64:
        nearest = nearest.clamp(max=torch.finfo(dtype).max).to(dtype)
    if min(stack.sizes) > k:
        return nearest
    last = torch.tensor(stack.sizes, device=nearest.device) - 2
    columns = torch.minimum(torch.arange(k, device=nearest.device), last[:, None])
    return nearest.gather(1, columns.repeat_interleave(num_points, dim=0))
