"""Exact neighbours at the speed of approximate ones.

The matrix-product trick `|x|^2 + |y|^2 - 2 x.y` is fast and loses digits: duplicates come out
apart, and far from the origin even the order of the neighbours is wrong. So it only proposes
candidates here. Their distances are recomputed from coordinate differences, and a row is accepted
only if the rounding error cannot have hidden a closer point; the others are searched again, first
by a float64 product, then by differences.
"""

import numpy as np
import torch
from torch import Tensor

from rllib_rise.entropy.backends import (
    direct_candidates,
    float32_candidates,
    indexed_distances,
    matmul_candidates,
)
from rllib_rise.entropy.grouping import Groups

# A few candidates beyond the k-th widen the gap between it and the first point that was not
# fetched, which is what certifies a row.
_EXTRA_CANDIDATES = 4

# Coordinate differences held at once.
_REFINE_ELEMENTS = 2**20

# Within these radii no float32 square that matters overflows or underflows.
_MIN_RADIUS, _MAX_RADIUS = 2.0**-40, 2.0**40

_WITHOUT_SIGN = np.uint32(0x7FFFFFFF)
_SMALLEST_SAFE = np.float32(2.0**-38).view(np.uint32) - np.uint32(1)

# Relative gaps in squared distance below which two neighbours count as equally far.
_TIE_TOLERANCE = {torch.float32: 8 * torch.finfo(torch.float32).eps, torch.float64: 1e-12}


def nearest_distances(points: Tensor, layout: Groups, reach: int, backend: str) -> Tensor:
    """Distances to the `reach` nearest other points of the same group.

    Args:
        points: Finite points [N, m], float32 or float64, sorted by group.
        layout: Their groups, the largest of more than `reach` points.
        reach: How many neighbours.
        backend: A result of `resolve_backend`.

    Returns:
        Ascending distances [N, reach] as float64, exact to the precision of the points; inf where
        the group has too few.
    """
    values, exponents = points, list[Tensor]()
    centred, norms = _centred(values, layout)
    if not _radii_are_safe(norms, layout):
        values, exponents = _scaled(points, layout)
        centred, norms = _centred(values, layout)
    tie = _TIE_TOLERANCE[points.dtype]
    width = reach + 1 + _EXTRA_CANDIDATES
    bound, candidates = _candidates(centred.float(), layout, width, backend)
    del centred
    everyone = torch.arange(points.shape[0], device=points.device)
    nearest = _refined(values, everyone, candidates, reach, backend)
    sure = _certified(nearest[:, -1], bound, norms, points.shape[1], torch.float32, tie)
    if not bool(sure.all()):
        _search_again(values, layout, nearest, everyone[~sure], tie)
    for exponent in exponents:
        nearest = _times_power_of_two(nearest, exponent[layout.member])
    return nearest


def _centred(values: Tensor, layout: Groups) -> tuple[Tensor, Tensor]:
    """Offsets from the group's mean [N, m], for the candidate search only, and their norms [N]."""
    centred = values - layout.mean(values)
    return centred, torch.linalg.vector_norm(centred, dim=1, dtype=torch.float64)


def _radii_are_safe(norms: Tensor, layout: Groups) -> bool:
    radius = layout.max(norms)
    safe = (radius >= _MIN_RADIUS) & (radius <= _MAX_RADIUS)
    lone = torch.tensor(layout.sizes, device=norms.device) == 1
    return bool((safe | lone).all())


def _scaled(points: Tensor, layout: Groups) -> tuple[Tensor, list[Tensor]]:
    """The points in float64, every group brought to a radius near 1.

    Powers of two change the exponent of a number and none of its digits. The first scaling, by the
    magnitude, keeps the mean from overflowing; the second is by the distance from the mean.

    Returns:
        The points [N, m] and the exponents [G] that undo the scalings, in the order to apply them.
    """
    values, exponents = points.double(), list[Tensor]()
    for centre in (False, True):
        offsets = values - layout.mean(values) if centre else values
        exponent = layout.max(offsets.abs().amax(dim=1)).frexp().exponent
        values = _times_power_of_two(values, -exponent[layout.member])
        exponents.insert(0, exponent)
    return values, exponents


def _times_power_of_two(values: Tensor, exponent: Tensor) -> Tensor:
    # In two steps: 2^1074, which the smallest float64 needs, is itself infinite.
    half = exponent // 2
    for part in (half, exponent - half):
        values = values * torch.exp2(part.double())[:, None]
    return values


def _candidates(centred: Tensor, layout: Groups, width: int, backend: str) -> tuple[Tensor, Tensor]:
    """Bounds [N] and indices [N, c]; a group that fits in whole has bound inf, and -1 pads."""
    num_points, device = centred.shape[0], centred.device
    size = layout.sizes[0]
    if size > width and min(layout.sizes) == max(layout.sizes):  # all groups at once
        bound, local = float32_candidates(centred.view(-1, size, centred.shape[1]), width, backend)
        starts = torch.tensor(layout.starts, device=device)[layout.member][:, None]
        return bound.double(), torch.where(local < 0, -1, local + starts)
    bound = torch.full((num_points,), torch.inf, dtype=torch.float64, device=device)
    tables = []
    for start, size in zip(layout.starts, layout.sizes, strict=True):
        rows = slice(start, start + size)
        if size <= width:
            tables.append(torch.arange(start, start + size, device=device).expand(size, -1))
            continue
        bound[rows], local = float32_candidates(centred[None, rows], width, backend)
        tables.append(torch.where(local < 0, -1, local + start))
    most = max(table.shape[1] for table in tables)
    indices = torch.full((num_points, most), -1, device=device)
    for start, table in zip(layout.starts, tables, strict=True):
        indices[start : start + table.shape[0], : table.shape[1]] = table
    return bound, indices


def _refined(
    values: Tensor, rows: Tensor, candidates: Tensor, reach: int, backend: str = "torch"
) -> Tensor:
    """The `reach` smallest distances from `rows` [Q] to `candidates` [Q, width], as float64.

    By coordinate differences, whose squares FAISS sums in float32 and torch in float64.
    """
    by_faiss = backend == "faiss" and _float32_suffices(values)
    width = candidates.shape[1]
    chunk = max(1, _REFINE_ELEMENTS // (width * (1 if by_faiss else values.shape[1])))
    parts = []
    for row, index in zip(rows.split(chunk), candidates.split(chunk), strict=True):
        if by_faiss:
            distances = indexed_distances(values, row, index.clamp(min=0)).double()
        else:
            differences = torch.nn.functional.embedding(index.clamp(min=0), values)
            differences -= values[row][:, None]
            # Squares of float32 differences cannot underflow in float64.
            distances = torch.linalg.vector_norm(differences, dim=2, dtype=torch.float64)
        distances.masked_fill_((index < 0) | (index == row[:, None]), torch.inf)
        parts.append(distances.topk(reach, dim=1, largest=False).values)
    return torch.cat(parts)


def _float32_suffices(values: Tensor) -> bool:
    """Whether FAISS can take the differences: no square of one underflows in float32.

    Numbers that are not 0 and not below 2^-38 differ by at least 2^-62, or not at all.
    """
    if values.dtype != torch.float32 or values.device.type != "cpu":
        return False
    # Without its sign a float32 grows with its bits; 0 becomes the largest of them.
    bits = (values.numpy().view(np.uint32) & _WITHOUT_SIGN) - np.uint32(1)
    return bool(bits.min() >= _SMALLEST_SAFE)


def _certified(
    kth: Tensor, bound: Tensor, norms: Tensor, dimension: int, dtype: torch.dtype, tie: float
) -> Tensor:
    """Rows [Q] whose k-th distance no point outside the candidates can undercut.

    Suppose a point y outside the candidates of x were closer than d = kth. Then |y| <= |x| + d,
    and with S = |x|^2 + (|x| + d)^2 its approximate squared distance is off by at most

        2 gamma S,   gamma = (m + 8) u / (1 - (m + 8) u),   u the unit roundoff:

    a scalar product of m terms, summed in whatever order, is off by at most gamma_m |x| |y|, and
    the squared norms by gamma_m |x|^2 and gamma_m |y|^2 (together 2 m u S, as 2 |x| |y| <= S);
    rounding the centred coordinates moves the squared distance by at most 4 u S, and combining the
    three terms adds at most 4 u S. Not being fetched, y has an approximate value of at least
    `bound`. So `d^2 + 2 gamma S <= bound` rules y out. This is a guarantee, not an estimate; in
    practice the error is several times smaller.
    """
    unit = torch.finfo(dtype).eps / 2
    gamma = (dimension + 8) * unit / (1 - (dimension + 8) * unit)
    error = 2 * gamma * (norms.square() + (norms + kth).square())
    # Products below the smallest normal number may be flushed to zero.
    error += 4 * dimension * torch.finfo(dtype).tiny
    return (kth == 0) | bound.isinf() | (kth.square() * (1 - tie) + error <= bound)


def _search_again(
    values: Tensor, layout: Groups, nearest: Tensor, rows: Tensor, tie: float
) -> None:
    """Replaces `nearest[rows]` by distances found with float64 products, or by differences."""
    reach = nearest.shape[1]
    width = reach + 1 + _EXTRA_CANDIDATES
    touched, counts = layout.member[rows].unique_consecutive(return_counts=True)
    for group, part in zip(touched.tolist(), rows.split(counts.tolist()), strict=True):
        start, size = layout.starts[group], layout.sizes[group]
        base = values[start : start + size].double()
        centred = base - base.mean(dim=0)
        bound, local = matmul_candidates(centred[part - start], centred, width)
        norms = torch.linalg.vector_norm(centred[part - start], dim=1)
        del centred
        found = _refined(values, part, local + start, reach)
        sure = _certified(found[:, -1], bound, norms, base.shape[1], torch.float64, tie)
        nearest[part] = found
        left = part[~sure]
        if left.numel():
            _, local = direct_candidates(base[left - start], base, width)
            nearest[left] = _refined(values, left, local + start, reach)
