"""The smallest entries of every row of a matrix, on the CPU.

`torch.topk` takes several times as long for a row as the matrix product that made it. Here a row is
read twice by vectorised loops instead: once for the minima of its groups of entries, of which the
`width`-th smallest bounds the `width`-th smallest entry from above, and once, in the groups that
hold such an entry, for all that is not above this bound.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

_GROUP = 8
_MOST_PER_WIDTH = 4


def smallest_entries(
    values: FloatArray, width: int, limit: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """At least the `width` smallest entries of each row, as far as they are not above its limit.

    Args:
        values: [q, n].
        width: How many.
        limit: [q]; inf where a row has none.

    Returns:
        Rows and columns of the entries, in the order of the rows, and the new limits [q]: entries
        that were left out are not below them.
    """
    num_rows, num_columns = values.shape
    groups = num_columns // _GROUP
    if groups >= 2 * width:
        rows, columns, limit = _by_groups(values, width, limit, groups)
    else:
        if width < num_columns:
            limit = np.minimum(limit, np.sort(values, axis=1)[:, width - 1])
        rows, columns = np.divmod(np.flatnonzero(values <= limit[:, None]), num_columns)
    crowded = np.flatnonzero(np.bincount(rows, minlength=num_rows) > _MOST_PER_WIDTH * width)
    if crowded.size and width < num_columns:
        return _thinned(values, width, limit, rows, columns, crowded)
    return rows, columns, limit


def padded(entries: Sequence[tuple[IntArray, IntArray]], num_rows: int) -> IntArray:
    """The columns of each row side by side [num_rows, most of a row], filled up by -1."""
    rows, columns = entries[0]
    if len(entries) > 1:
        rows = np.concatenate([row for row, _ in entries])
        order = np.argsort(rows, kind="stable")
        rows, columns = rows[order], np.concatenate([column for _, column in entries])[order]
    counts = np.bincount(rows, minlength=num_rows)
    starts = counts.cumsum() - counts
    table = np.full((num_rows, int(counts.max(initial=0))), -1, dtype=np.int64)
    table[rows, np.arange(rows.size) - starts[rows]] = columns
    return table


def _by_groups(
    values: FloatArray, width: int, limit: FloatArray, groups: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Group g consists of the columns g, g + groups, g + 2 groups, ..."""
    num_columns = values.shape[1]
    whole = num_columns // groups
    # torch's reduction is faster than NumPy's.
    tiles = torch.from_numpy(values)[:, : whole * groups].unflatten(1, (whole, groups))
    lows = tiles.amin(dim=1).numpy()
    rest = values[:, whole * groups :]
    np.minimum(lows[:, : rest.shape[1]], rest, out=lows[:, : rest.shape[1]])
    limit = np.minimum(limit, np.sort(lows, axis=1)[:, width - 1])
    rows, group = np.divmod(np.flatnonzero(lows <= limit[:, None]), groups)
    columns = group[:, None] + groups * np.arange(whole + (rest.shape[1] > 0))
    inside = np.minimum(columns, num_columns - 1) if rest.shape[1] else columns
    entries = values.reshape(-1).take(rows[:, None] * num_columns + inside)
    if rest.shape[1]:
        entries[inside != columns] = np.inf
    near = np.flatnonzero(entries <= limit[rows, None])
    return rows[near // columns.shape[1]], columns.reshape(-1)[near], limit


def _thinned(
    values: FloatArray,
    width: int,
    limit: FloatArray,
    rows: IntArray,
    columns: IntArray,
    crowded: IntArray,
) -> tuple[IntArray, IntArray, FloatArray]:
    """In crowded rows any `width` of the smallest: many are equal, and one of them is the last."""
    found = np.argpartition(values[crowded], width - 1, axis=1)[:, :width]
    last = values[crowded, found[:, -1]]
    limit = limit.copy()
    limit[crowded] = np.minimum(limit[crowded], last)
    others = ~np.isin(rows, crowded)
    rows = np.concatenate((rows[others], np.repeat(crowded, width)))
    columns = np.concatenate((columns[others], found.reshape(-1)))
    order = np.argsort(rows, kind="stable")
    return rows[order], columns[order], limit
