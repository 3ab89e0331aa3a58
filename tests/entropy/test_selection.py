"""The smallest entries of rows, against sorting."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_rise.entropy.backends import float32_candidates
from rllib_rise.entropy.selection import padded, smallest_entries


@settings(max_examples=300, deadline=None)
@given(
    num_rows=st.integers(1, 6),
    num_columns=st.integers(1, 90),
    width=st.integers(1, 12),
    levels=st.sampled_from([2, 5, 40, 10_000]),  # few levels: many ties
    limited=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_entries_are_the_smallest_and_the_limit_bounds_the_rest(
    num_rows, num_columns, width, levels, limited, seed
):
    rng = np.random.default_rng(seed)
    values = rng.integers(levels, size=(num_rows, num_columns)).astype(np.float32)
    before = np.full(num_rows, levels / 3 if limited else np.inf, dtype=np.float32)
    rows, columns, limit = smallest_entries(values, width, before)
    assert (np.diff(rows) >= 0).all()
    assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == len(rows)
    for row in range(num_rows):
        chosen = columns[rows == row]
        taken, rest = values[row, chosen], np.delete(values[row], chosen)
        assert (rest >= limit[row]).all()
        assert limit[row] <= before[row]
        wanted = np.sort(values[row])[:width]
        wanted = wanted[wanted <= before[row]]
        np.testing.assert_array_equal(np.sort(taken)[: len(wanted)], wanted)
        assert len(chosen) <= max(4 * width, num_columns if num_columns <= width else 0)


@pytest.mark.parametrize("blocks", [(40,), (25, 15), (16, 16, 8)])
def test_blocks_of_columns_together_have_the_smallest(blocks):
    values = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    limit, found, left = np.full(30, np.inf, dtype=np.float32), [], 0
    for size in blocks:
        part = np.ascontiguousarray(values[:, left : left + size])
        rows, columns, limit = smallest_entries(part, 9, limit)
        found.append((rows, columns + left))
        left += size
    table = padded(found, 30)
    for row, columns in enumerate(table):
        assert {*np.argsort(values[row])[:9]} <= {*columns}
        rest = np.delete(values[row], columns[columns >= 0])
        assert (rest >= limit[row]).all()


def test_a_crowd_of_equal_points_does_not_widen_the_table_of_all():
    points = torch.randn(1, 2000, 8, generator=torch.Generator().manual_seed(0))
    points[0, :300] = points[0, 0]
    _, table = float32_candidates(points, 10, "torch")
    assert table.shape[1] <= 40
