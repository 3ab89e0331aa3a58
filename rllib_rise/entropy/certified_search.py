"""Exact neighbours at the speed of approximate ones.

The matrix-product trick `|x|^2 + |y|^2 - 2 x.y` is fast and loses digits: duplicates come out
apart, and far from the origin even the order of the neighbours is wrong. So it only proposes
candidates here. Their distances are recomputed from coordinate differences, and a row is accepted
only if the rounding error cannot have hidden a closer point; the others are searched again, first
by a float64 product, then by differences.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rllib_rise.entropy.candidates import (
    Candidates,
    direct_candidates,
    product_candidates,
    product_error,
    torch_candidates,
    without_self,
)
from rllib_rise.entropy.copies import distinct_points, repeated
from rllib_rise.entropy.cpu_search import cpu_candidates
from rllib_rise.entropy.faiss_gpu import gpu_candidates
from rllib_rise.entropy.faiss_search import faiss_candidates, faiss_distances
from rllib_rise.entropy.grouping import Stack

_SEARCHES = {
    "faiss": faiss_candidates,
    "faiss-gpu": gpu_candidates,
    "torch": torch_candidates,
}

# A few candidates beyond the k-th widen the gap between it and the first point that was not
# fetched, which is what certifies a row.
_EXTRA_CANDIDATES = 3

# Coordinate differences held at once.
_REFINE_ELEMENTS = 2**20

# Squared radii within which no float32 square that matters overflows or underflows.
_SAFE_RADII = (2.0**-80, 2.0**80)

# Relative gaps in squared distance below which two neighbours count as equally far.
_TIE_TOLERANCE = {torch.float32: 8 * torch.finfo(torch.float32).eps, torch.float64: 1e-12}


def nearest_distances(stack: Stack, reach: int, backend: str) -> Tensor:
    """Distances to the `reach` nearest other points of the same set.

    Args:
        stack: Sets of finite points, float32 or float64.
        reach: How many neighbours, fewer than there are points in the largest set.
        backend: A result of `resolve_backend`.

    Returns:
        Ascending distances [g n, reach] as float32 or float64, exact to the precision of the
        points; inf where the set has too few.
    """
    tie, exponents = _TIE_TOLERANCE[stack.points.dtype], list[Tensor]()
    centred, squares = _centred(stack.points)
    if not _is_safe(stack.points, squares):
        points, exponents = _scaled(stack.points)
        stack = replace(stack, points=points)
        centred, squares = _centred(points)
    shape, distinct = stack.points.shape, distinct_points(stack, centred, squares)
    if distinct is not None:
        stack = distinct.stack
        centred = centred.flatten(0, 1)[distinct.chosen].view(stack.points.shape)
        squares = squares.flatten()[distinct.chosen].view(stack.points.shape[:2])
    found = _candidates(stack, centred, squares, reach + _EXTRA_CANDIDATES, backend)
    del centred
    points, squares = stack.points.flatten(0, 1), squares.flatten()
    everyone = torch.arange(len(points), device=points.device)
    counts = None if stack.counts is None else stack.counts.flatten()
    distances = None
    if backend != "torch" and points.device.type == "cpu" and points.dtype == torch.float32:
        distances = faiss_distances(points, found.index)
    if distances is None:
        nearest = _refined(points, everyone, found.index, reach, counts)
    else:
        nearest = _smallest(distances, everyone, found.index, reach, counts)
    sure = _certified(nearest[:, -1], found, squares, tie)
    if not bool(sure.all()):
        own, unsure = stack.own_points(), ~sure
        rows = unsure if own is None else unsure & own.flatten()
        nearest = nearest.double()
        _search_again(stack, nearest, rows.nonzero().squeeze(1), tie)
    if distinct is not None:
        nearest = nearest[distinct.place]
    for exponent in exponents:
        nearest = _times_power_of_two(nearest.view(*shape[:2], -1), exponent)
    return nearest.view(-1, reach)


def _centred(points: Tensor) -> tuple[Tensor, Tensor]:
    """Offsets from about the middle of each set as float32 [g, n, m], and their squares [g, n]."""
    centred = (points - points.mean(dim=1, keepdim=True)).float()
    return centred, torch.linalg.vector_norm(centred, dim=2).square_()


def _is_safe(points: Tensor, squares: Tensor) -> bool:
    low, high = _SAFE_RADII
    largest = squares.cpu().numpy().max(axis=1)  # NumPy's calls are shorter than torch's
    if largest.min() >= low and largest.max() <= high:
        return True
    radii = squares.amax(dim=1)
    all_equal = (points == points[:, :1]).flatten(1).all(dim=1)
    return bool(((all_equal | (radii >= low)) & (radii <= high)).all())


def _scaled(points: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The points in float64, every set brought to a radius near 1.

    Powers of two change the exponent of a number and none of its digits. The first scaling, by the
    magnitude, keeps the mean from overflowing; the second is by the distance from the mean.

    Returns:
        The points [g, n, m] and the exponents [g] that undo the scalings, in the order to apply
        them.
    """
    values, exponents = points.double(), list[Tensor]()
    for centre in (False, True):
        offsets = values - values.mean(dim=1, keepdim=True) if centre else values
        exponent = offsets.abs().amax(dim=(1, 2)).frexp().exponent
        values = _times_power_of_two(values, -exponent)
        exponents.insert(0, exponent)
    return values, exponents


def _times_power_of_two(values: Tensor, exponent: Tensor) -> Tensor:
    # In two steps: 2^1074, which the smallest float64 needs, is itself infinite.
    half = exponent // 2
    for part in (half, exponent - half):
        values = values * torch.exp2(part.double())[:, None, None]
    return values


def _candidates(
    stack: Stack, centred: Tensor, squares: Tensor, width: int, backend: str
) -> Candidates:
    """The `width` approximately nearest others of every point [g n], by float32."""
    num_sets, num_points, dimension = centred.shape
    if num_points - 1 <= width:
        index = _all_others(stack)
        bound = squares.new_full((len(index),), torch.inf)
        return Candidates(index, bound, product_error(dimension, torch.float32))
    if centred.device.type == "cpu" and backend != "faiss":
        return cpu_candidates(stack, centred, squares, width)
    index = torch.full((num_sets, num_points, width + 1), -1, device=centred.device)
    bound = squares.new_full((num_sets, num_points), torch.inf)
    for number, size in enumerate(stack.sizes):
        # One more, because these find the point itself too.
        found, limit = _SEARCHES[backend](centred[number, :size], min(width + 1, size))
        others = without_self(found, torch.arange(size, device=found.device))
        others = torch.where(others < 0, -1, others + number * num_points)
        index[number, :size, : others.shape[1]] = others
        if size > width + 1:
            bound[number, :size] = limit
    error = product_error(dimension, torch.float32)
    return Candidates(index.flatten(0, 1), bound.flatten(), error)


def _all_others(stack: Stack) -> Tensor:
    """Every point of the set but the point itself [g n, n]."""
    num_sets, num_points, _ = stack.points.shape
    rows = torch.arange(num_sets * num_points, device=stack.points.device)
    others = rows.view(num_sets, 1, num_points).repeat(1, num_points, 1)
    own = stack.own_points()
    if own is not None:
        others.masked_fill_(~own[:, None], -1)
    return without_self(others.flatten(0, 1), rows)


def _refined(
    points: Tensor, rows: Tensor, others: Tensor, reach: int, counts: Tensor | None
) -> Tensor:
    """The `reach` smallest distances from `rows` [Q] to `others` [Q, c], as float64.

    By coordinate differences; -1 stands for no point.
    """
    chunk = max(1, _REFINE_ELEMENTS // (others.shape[1] * points.shape[1]))
    parts = []
    for row, index in zip(rows.split(chunk), others.split(chunk), strict=True):
        differences = torch.nn.functional.embedding(index.clamp(min=0), points)
        differences -= points[row][:, None]
        # Squares of float32 differences cannot underflow in float64.
        distances = torch.linalg.vector_norm(differences, dim=2, dtype=torch.float64)
        distances.masked_fill_(index < 0, torch.inf)
        parts.append(_smallest(distances, row, index, reach, counts))
    return torch.cat(parts)


def _smallest(
    distances: Tensor, rows: Tensor, others: Tensor, reach: int, counts: Tensor | None
) -> Tensor:
    """The `reach` smallest distances from `rows` [Q] to `others` [Q, c]; overwrites them."""
    if counts is not None:
        times = counts[others].masked_fill_(others < 0, 0)
        return repeated(distances, times, counts[rows] - 1, reach)
    if distances.device.type != "cpu":
        return distances.topk(reach, dim=1, largest=False).values
    values = distances.numpy()
    # As integers, which is faster and for distances the same.
    values.view(np.int32 if values.itemsize == 4 else np.int64).sort(axis=1)
    return torch.from_numpy(values[:, :reach].copy())


def _certified(kth: Tensor, found: Candidates, squares: Tensor, tie: float) -> Tensor:
    """Rows [Q] whose k-th distance no point outside the candidates can undercut.

    A point y outside the candidates of x has an approximate squared distance of at least `bound`.
    If it were closer than d = kth, this would be off by at most `error` times d^2 and |x|^2. So
    y is ruled out where d^2 and that error together are not above the bound. This is a guarantee,
    not an estimate; in practice the error is several times smaller.
    """
    error = found.error
    slack = torch.sub(found.bound, squares, alpha=error.of_norm).sub_(error.absolute)
    sure = kth.square() * (1 - tie + error.of_square) <= slack
    return sure if bool(sure.all()) else sure | (kth == 0)


def _search_again(stack: Stack, nearest: Tensor, rows: Tensor, tie: float) -> None:
    """Replaces `nearest[rows]` by distances found with float64 products, or by differences."""
    reach, size = nearest.shape[1], stack.points.shape[1]
    width = reach + _EXTRA_CANDIDATES
    touched, counts = (rows // size).unique_consecutive(return_counts=True)
    for number, part in zip(touched.tolist(), rows.split(counts.tolist()), strict=True):
        start = number * size
        points = stack.points[number, : stack.sizes[number]]
        counts = None if stack.counts is None else stack.counts[number]
        base, own = points.double(), part - start
        centred = base - base.mean(dim=0)
        found = product_candidates(centred[own], centred, width + 1)
        squares = centred[own].square().sum(dim=1)
        del centred
        distances = _refined(points, own, without_self(found.index, own), reach, counts)
        sure = _certified(distances[:, -1], found, squares, tie)
        nearest[part] = distances
        left = own[~sure]
        if left.numel():
            index = without_self(direct_candidates(base[left], base, width + 1), left)
            nearest[left + start] = _refined(points, left, index, reach, counts)
