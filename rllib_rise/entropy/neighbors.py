"""Distances to the k nearest other points: the public functions."""

import torch
from torch import Tensor

from rllib_rise.entropy.backends import resolve_backend
from rllib_rise.entropy.certified_search import nearest_distances
from rllib_rise.entropy.grouping import Groups, group_points
from rllib_rise.errors import ConfigError, NonFiniteError


def neighbor_distances(
    x: Tensor, k: int, *, groups: Tensor | None = None, backend: str = "auto"
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
        groups: Integer labels [N]; only points of the same label are neighbours. None is one
            group.
        backend: `"auto"`, `"faiss"`, `"faiss-gpu"` or `"torch"`; see `resolve_backend`. It
            affects speed, not the result.

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
    chosen = resolve_backend(backend, points.device)
    layout = group_points(points.shape[0], groups, points.device)
    # Autocast would run the products in half precision.
    with torch.no_grad(), torch.autocast(points.device.type, enabled=False):
        distances = _grouped_distances(points, k, layout, chosen)
    return distances.to(x.device)


def kth_neighbor_distance(
    x: Tensor, k: int, *, groups: Tensor | None = None, backend: str = "auto"
) -> Tensor:
    """The last column of `neighbor_distances`: rho_i, the distance to the k-th other point.

    Args:
        x: Points [N, m].
        k: Which neighbour, counting other points only.
        groups: Integer labels [N] or None.
        backend: As in `neighbor_distances`.

    Returns:
        Distances [N].
    """
    return neighbor_distances(x, k, groups=groups, backend=backend)[:, -1]


def has_k_others(num_points: int, k: int, groups: Tensor | None = None) -> Tensor:
    """Which points have at least k others to choose from; the k of the rest is clipped.

    Args:
        num_points: N.
        k: The neighbour asked for.
        groups: Integer labels [N] or None.

    Returns:
        Booleans [N], on the device of `groups`.
    """
    check_k(k)
    if groups is None:
        return torch.full((num_points,), num_points > k)
    _, member, sizes = groups.unique(return_inverse=True, return_counts=True)
    return sizes[member] > k


def check_k(k: int) -> None:
    """Raises ConfigError unless `k` is an integer of at least 1."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ConfigError(f"k={k!r} must be an integer of at least 1: it counts other points")


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
    if points.numel() and not all(bound.isfinite() for bound in points.aminmax()):
        bad = int(points.numel() - points.isfinite().sum())
        raise NonFiniteError(
            f"x holds {bad} NaN or infinite values of {points.numel()}; check the observations and "
            "the encoder that produced it"
        )
    return points


def _grouped_distances(points: Tensor, k: int, layout: Groups, backend: str) -> Tensor:
    reach = min(k, max(layout.sizes, default=0) - 1)
    if reach < 1:
        return points.new_zeros(points.shape[0], k)
    arranged = points if layout.order is None else points[layout.order]
    nearest = nearest_distances(arranged, layout, reach, backend)
    nearest = _repeat_last_available(nearest, layout)
    limit = torch.finfo(points.dtype).max
    nearest = nearest.clamp_(max=limit).to(points.dtype)
    if reach < k:
        nearest = torch.cat((nearest, nearest[:, -1:].expand(-1, k - reach)), dim=1)
    if layout.order is None:
        return nearest
    return torch.empty_like(nearest).index_copy_(0, layout.order, nearest)


def _repeat_last_available(nearest: Tensor, layout: Groups) -> Tensor:
    reach = nearest.shape[1]
    if min(layout.sizes) > reach:
        return nearest
    others = torch.tensor(layout.sizes, device=nearest.device)[layout.member] - 1
    columns = torch.arange(reach, device=nearest.device)
    kept = torch.minimum(columns, (others - 1).clamp(min=0)[:, None])
    return nearest.gather(1, kept).masked_fill_((others == 0)[:, None], 0.0)
