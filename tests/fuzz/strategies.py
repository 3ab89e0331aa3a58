"""What is thrown at the package: tensors, numbers and things that are no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OTHERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
DTYPES = st.sampled_from([*FLOATS, *FLOATS, *OTHERS])

NOT_FINITE = (float("nan"), float("inf"), float("-inf"))
EXTREME = (0.0, -0.0, 1e-45, -1e-42, 5e-324, 1e-38, 1e-20, 1e20, 3.4e38, -3.4e38, 1e38, 1e300)
NOT_NUMBERS = (None, "", "many", "1", True, (), [1], {}, b"1", 1j)


def mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One in ten is bad: of several arguments, seldom more than one."""
    return st.integers(0, 9).flatmap(lambda number: bad if number == 5 else good)


plain_numbers = st.floats(-100, 100, width=32)
#: Mostly the edges of what is allowed, and what is beyond them.
edge_numbers = st.one_of(
    st.sampled_from([0, 1, -1, 2, 10**9, 2**63, -(2**70), 10**400, *NOT_FINITE, *EXTREME]),
    st.floats(-2, 2),
    st.integers(-3, 20),
)
anything = edge_numbers | st.sampled_from(NOT_NUMBERS)
#: Of every order that matters: 0, 1, beside it, and what is no order.
orders = mostly(
    st.one_of(
        st.sampled_from([0, 0.0, -0.0, 0.1, 0.5, 1 - 1e-16, 1 - 1e-9, 1 - 1.1e-6, 0.9999, 5e-324]),
        st.floats(0, 1),
        st.sampled_from([1, 1.0, 1 + 1e-9, 1 + 1.1e-6, 1.5, 2, 15, 1e6, 1e300]),
    ),
    anything,
)
counts = mostly(st.integers(1, 6), st.integers(-1, 40) | anything)


@st.composite
def tensors(
    draw: st.DrawFn,
    shapes: st.SearchStrategy[tuple[int, ...]],
    *,
    dtypes: st.SearchStrategy[torch.dtype] = DTYPES,
    non_finite: bool = True,
) -> Tensor:
    """A tensor of a few values again and again, or of noise on some scale, or of both.

    Finite, but for one in ten. Only what matters is drawn; where each value stands comes from a
    seed, for speed.
    """
    shape, dtype = draw(shapes), draw(dtypes)
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([1.0, 1.0, 1e-3, 1e4, 1e-30, 1e30]))
    values = generator.normal(draw(st.sampled_from([0, 0, 1e3])), 1, shape) * scale
    share = draw(st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0]))
    numbers = st.sampled_from(EXTREME) | plain_numbers
    palette = draw(st.lists(numbers, min_size=1, max_size=5))
    palette += draw(mostly(st.just([]), st.just([*NOT_FINITE]))) if non_finite else []
    taken = generator.random(shape) < share
    values = np.where(taken, generator.choice(np.array(palette), shape), values)
    if dtype in FLOATS:
        limits = torch.finfo(dtype)
        values = np.where(np.isfinite(values), np.clip(values, limits.min, limits.max), values)
    else:
        values = np.clip(np.nan_to_num(values), -1e9, 1e9)
    found = torch.as_tensor(np.asarray(values)).to(dtype)
    if found.ndim and len(found) > 2 and draw(st.booleans()):  # rows that occur several times
        found = found[torch.from_numpy(generator.integers(0, len(found) // 2, len(found)))]
    return found


def points(most: int = 12) -> st.SearchStrategy[Tensor]:
    """Mostly [N, m], at times with too many dimensions or too few."""
    rows = st.one_of(st.integers(0, 3), st.integers(0, most), st.sampled_from([300]))
    wide = st.tuples(rows, st.sampled_from([1, 2, 3, 4, 9]))
    wrong = st.sampled_from([(), (3,), (2, 3, 4), (4, 0), (0, 0)])
    return tensors(mostly(wide, wrong))


def labels(num_points: int) -> st.SearchStrategy[Tensor]:
    """Groups of these points; at times what cannot be any."""
    right = tensors(st.just((num_points,)), dtypes=st.sampled_from([torch.int64, torch.uint8]))
    wrong = tensors(st.sampled_from([(), (num_points, 1), (num_points + 1,), (num_points,)]))
    return mostly(right, wrong)
