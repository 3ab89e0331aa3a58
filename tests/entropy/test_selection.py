"""The smallest entries of rows, against sorting."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_rise.entropy.selection import padded_length, smallest_entries


@settings(max_examples=300, deadline=None)
@given(
    num_rows=st.integers(1, 6),
    num_columns=st.one_of(st.integers(1, 90), st.sampled_from([256, 300, 512, 1024, 2048])),
    width=st.integers(1, 12),
    levels=st.sampled_from([1, 2, 5, 40, 10_000]),  # few levels: many ties
    exact=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_entries_are_the_smallest_and_no_other_is_below_the_last(
    num_rows, num_columns, width, levels, exact, seed
):
    width = min(width, num_columns)
    rng = np.random.default_rng(seed)
    values = rng.integers(levels, size=(num_rows, num_columns)).astype(np.float32) / 7
    near, columns = smallest_entries(torch.from_numpy(values.copy()), width, exact=exact)
    # The bits of a column: 2^-23 is the last one of a float32.
    slack = 0 if exact else 2.0 ** (max(num_columns - 1, 1).bit_length() - 23)
    for row in range(num_rows):
        chosen = columns[row].numpy()
        assert len(set(chosen.tolist())) == width
        taken, rest = np.sort(values[row, chosen]), np.delete(values[row], chosen)
        wanted = np.sort(values[row])[:width]
        np.testing.assert_allclose(taken, wanted, rtol=slack, atol=0)
        assert (rest >= near[row, -1].item()).all()
        assert (values[row, chosen] >= near[row].numpy()).all()
        np.testing.assert_allclose(near[row, -1], wanted[-1], rtol=slack, atol=0)


def test_exact_entries_are_told_apart_by_their_last_bit():
    values = torch.full((3, 1024), 2.0)
    values[:, 700] = torch.nextafter(torch.tensor(2.0), torch.tensor(0.0))
    for width in (1, 5):
        near, columns = smallest_entries(values.clone(), width, exact=True)
        assert columns[:, 0].tolist() == [700] * 3
        assert near[0].tolist() == [values[0, 700].item(), *[2.0] * (width - 1)]


def test_infinite_and_negative_entries_come_last_and_first():
    values = torch.rand(4, 512)
    values[:, ::2] = torch.inf
    values[:, 301] = -1e-6
    for exact in (False, True):
        near, columns = smallest_entries(values.clone(), 300, exact=exact)
        assert (columns[:, 0] == 301).all()
        assert near.isfinite().sum(dim=1).tolist() == [256] * 4
        assert near[:, 256:].eq(torch.inf).all()


@pytest.mark.parametrize("width", [1, 8, 25, 200])
@pytest.mark.parametrize("length", [1, 100, 257, 1000, 1023, 2048, 5000])
def test_padding_is_small_and_once_is_enough(length, width):
    padded = padded_length(length, width)
    assert length <= padded < length + 512
    assert padded <= length or length > 256
    # The cut into groups leaves no rest: the rows are read as often as ones that need no padding.
    values = torch.rand(2, max(padded, width))
    near, columns = smallest_entries(values.clone(), width, exact=True)
    torch.testing.assert_close(near, values.sort(dim=1).values[:, :width], rtol=0, atol=0)
    torch.testing.assert_close(values.gather(1, columns), near, rtol=0, atol=0)
