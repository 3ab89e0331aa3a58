"""The smallest entries of every row of a matrix, on the CPU.

`torch.topk` takes several times as long for a row as the matrix product that made it. NumPy's
vectorised sort of integers is fast as long as a row has a few hundred of them. So the column of an
entry is written into the last bits of its value, these are sorted as integers, and a longer row is
cut into groups of entries first: those with the smallest minima hold the smallest entries.
"""

import math

import numpy as np
import torch
from torch import Tensor

# Rows up to this length are sorted by a network, without branches.
_SHORT = 256
_MOST_GROUPS = 512

_SPARE_BITS = 29
"""Digits that a float64 has and a float32 has not."""


def padded_length(length: int, width: int) -> int:
    """The length, at least `length`, at which rows are cut into groups without a rest."""
    groups = _num_groups(length, width)
    return math.ceil(length / groups) * groups


def smallest_entries(values: Tensor, width: int, *, exact: bool) -> tuple[Tensor, Tensor]:
    """The `width` smallest entries of each row; of equal ones, any.

    Values are compared by their bits, which for numbers that are not negative is the same. Negative
    ones count as smaller than all others, but not among each other.

    Args:
        values: [q, n], float32, n as `padded_length` gives it; overwritten.
        width: How many, at most n.
        exact: Compare all bits. Else the last ones do not count, as many as it takes to write a
            column, which is twice as fast: entries that differ by less are as good as equal.

    Returns:
        Lower bounds on the entries, ascending, and their columns, both [q, width]. No other
        entry is below the last of them, unless that is negative.
    """
    num_columns = values.shape[1]
    groups = math.gcd(_num_groups(num_columns, width), num_columns)
    if groups < 2 * width:
        return _by_sorting(values, width, exact)
    # Group g consists of the columns g, g + groups, g + 2 groups, ...
    lows = values.unflatten(1, (-1, groups)).amin(dim=1)
    low, chosen = _by_sorting(lows, width, exact)
    columns = (chosen[:, :, None] + torch.arange(0, num_columns, groups)).flatten(1)
    near, place = _by_sorting(values.gather(1, columns), width, exact)
    if not exact:
        near[:, -1:].clamp_(max=low[:, -1:])
    return near, columns.gather(1, place)


def _num_groups(length: int, width: int) -> int:
    """A power of two that balances the number of groups with the entries of `width` of them.

    An entry of a chosen group costs twice as much as a group: it is fetched, then sorted.
    """
    if length <= _SHORT:
        return 1
    groups = min(2 ** round(math.log2(2 * length * width) / 2), _MOST_GROUPS)
    return groups if 2 * width <= groups <= length // 2 else 1


def _by_sorting(values: Tensor, width: int, exact: bool) -> tuple[Tensor, Tensor]:
    num_columns = values.shape[1]
    if exact:
        keys, bits = values.double().view(torch.int64), _SPARE_BITS
    else:
        keys, bits = values.view(torch.int32), (num_columns - 1).bit_length()
        keys.bitwise_and_(-1 << bits)
    keys.bitwise_or_(torch.arange(num_columns, dtype=keys.dtype))
    # NumPy's calls are shorter than torch's, and the sort is the faster one.
    table = keys.numpy()
    table.sort(axis=1)
    first = table[:, :width].copy()
    near = (first & (-1 << bits)).view(np.float64 if exact else np.float32)
    column = first & ((1 << bits) - 1)
    return torch.from_numpy(near.astype(np.float32)), torch.from_numpy(column.astype(np.int64))
