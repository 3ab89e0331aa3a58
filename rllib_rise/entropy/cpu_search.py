"""Candidates on the CPU: squared distances in blocks, and of each the nearest by fast sorts."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rllib_rise.entropy.candidates import (
    Candidates,
    difference_error,
    product_error,
    reduced_matmul_precision,
)
from rllib_rise.entropy.grouping import Stack
from rllib_rise.entropy.selection import padded_length, smallest_entries

BLOCK_ELEMENTS = 2**20
"""Numbers that are held at once; blocks of this size stay in a CPU's caches."""

_COLUMNS = 2**11

FEW_DIMENSIONS = 3
"""Up to here differences are as fast as a product, and they lose no digits."""


def cpu_candidates(stack: Stack, centred: Tensor, squares: Tensor, width: int) -> Candidates:
    """The `width` approximately nearest others of every point.

    Args:
        stack: Sets of n > width points.
        centred: These [g, n, m] about the origin, as float32.
        squares: Squared norms of the centred ones [g, n].
        width: Candidates per point.

    Returns:
        Candidates of all points [g n].
    """
    num_sets, num_points, dimension = centred.shape
    few = dimension <= FEW_DIMENSIONS and stack.points.dtype == torch.float32
    column_blocks = math.ceil(num_points / max(_COLUMNS, 2 * width))
    columns = padded_length(math.ceil(num_points / column_blocks), width)
    length, most = column_blocks * columns, BLOCK_ELEMENTS // (2 if few else 1)
    rows = max(1, min(num_points, most // columns))
    sets = max(1, min(num_sets, most // (rows * columns))) if rows == num_points else 1
    size = sets * rows * columns
    block: _Differences | _Products = (
        _Differences(stack, length, size)
        if few
        else _Products(stack, centred, squares, length, size)
    )
    parts = []
    for first, start in itertools.product(range(0, num_sets, sets), range(0, num_points, rows)):
        queries, found = (slice(first, first + sets), slice(start, start + rows)), []
        for left in range(0, length, columns):
            values = block(*queries, slice(left, left + columns))
            values.diagonal(start - left, dim1=1, dim2=2).fill_(torch.inf)
            near, index = smallest_entries(values.flatten(0, 1), width, exact=few)
            found.append((near, index.add_(left) if left else index))
        near, index = found[0] if column_blocks == 1 else _merged(found, width, few)
        if num_sets > 1:
            per_set = index.numpy().reshape(len(values), -1)
            per_set += np.arange(first, first + len(values))[:, None] * num_points
        parts.append((near, index))
    near, index = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts, strict=True))
    if min(stack.sizes) <= width:
        index.masked_fill_(near.isinf(), -1)
    error = difference_error(dimension) if few else product_error(dimension, torch.float32)
    return Candidates(index, near[:, -1], error)


def _merged(
    found: Sequence[tuple[Tensor, Tensor]], width: int, exact: bool
) -> tuple[Tensor, Tensor]:
    """The smallest entries of several blocks of columns, as `smallest_entries` gives them."""
    all_near, all_index = (torch.cat(part, dim=1) for part in zip(*found, strict=True))
    lowest = all_near[:, width - 1 :: width].amin(dim=1)
    near, place = smallest_entries(all_near, width, exact=exact)
    near[:, -1].clamp_(max=lowest)
    return near, all_index.gather(1, place)


class _Products:
    """Squared distances [s, r, c] of rows of some sets to columns, by products."""

    def __init__(
        self, stack: Stack, centred: Tensor, squares: Tensor, length: int, size: int
    ) -> None:
        dtype = torch.float64 if reduced_matmul_precision() else torch.float32
        self._points, self._squares = centred.to(dtype), squares.to(dtype)
        self._base = _lengthened(self._points, length, dim=1, value=0.0)
        own_squares = stack.fill(self._squares, torch.inf)
        self._base_squares = _lengthened(own_squares, length, dim=1, value=torch.inf)
        # Memory that is asked for anew is mapped anew, which takes as long as to fill it.
        self._memory = torch.empty(size, dtype=dtype)

    def __call__(self, sets: slice, rows: slice, columns: slice) -> Tensor:
        queries, base = self._points[sets, rows], self._base[sets, columns]
        values = _part(self._memory, *queries.shape[:2], base.shape[1])
        base_squares = self._base_squares[sets, None, columns]
        torch.baddbmm(base_squares, queries, base.mT, alpha=-2.0, out=values)
        return values.add_(self._squares[sets, rows, None]).float()


class _Differences:
    """The same by differences, one coordinate after the other."""

    def __init__(self, stack: Stack, length: int, size: int) -> None:
        self._points = stack.points
        base = stack.fill(stack.points, torch.inf).mT.contiguous()
        self._base = _lengthened(base, length, dim=2, value=torch.inf)
        self._memory, self._more_memory = torch.empty(2, size)

    def __call__(self, sets: slice, rows: slice, columns: slice) -> Tensor:
        queries, base = self._points[sets, rows, :, None], self._base[sets, None, :, columns]
        shape = (*queries.shape[:2], base.shape[3])
        values, gap = _part(self._memory, *shape), _part(self._more_memory, *shape)
        torch.sub(queries[:, :, 0], base[:, :, 0], out=values).square_()
        for axis in range(1, queries.shape[2]):
            torch.sub(queries[:, :, axis], base[:, :, axis], out=gap)
            values.addcmul_(gap, gap)
        return values


def _part(memory: Tensor, *shape: int) -> Tensor:
    return memory[: math.prod(shape)].view(shape)


def _lengthened(values: Tensor, length: int, *, dim: int, value: float) -> Tensor:
    missing = length - values.shape[dim]
    if missing == 0:
        return values
    return F.pad(values, (0, 0) * (values.ndim - 1 - dim) + (0, missing), value=value)
