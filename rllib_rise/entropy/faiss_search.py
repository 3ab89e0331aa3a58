"""FAISS on the CPU: its search, and its loops for exact distances."""

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rllib_rise.errors import RiseError

_QUERIES = 2**14

# Sums of float32 squares above this have lost nothing that matters to underflow.
_SAFE_SQUARE = 2.0**-80
_WITHOUT_SIGN = np.uint32(0x7FFFFFFF)
_SMALLEST_SAFE = np.float32(2.0**-38).view(np.uint32) - np.uint32(1)


@functools.cache
def load_faiss() -> Any:
    """The module, which is optional."""
    return importlib.import_module("faiss")


@contextmanager
def named_errors() -> Iterator[None]:
    """Say whose error it is, and how to do without."""
    try:
        yield
    except RuntimeError as error:
        raise RiseError(
            f"FAISS failed to find neighbours ({error}); intrinsic.knn_backend=torch does without "
            "it"
        ) from error


def faiss_candidates(points: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Indices of the `width` nearest [n, width], the point itself among them, and bounds [n]."""
    faiss = load_faiss()
    base = points.contiguous().numpy()
    indices, bounds = [], []
    for start in range(0, len(base), _QUERIES):
        with named_errors():
            squares, index = faiss.knn(base[start : start + _QUERIES], base, width)
        indices.append(torch.from_numpy(index))
        bounds.append(torch.from_numpy(squares[:, -1].copy()))
    return torch.cat(indices), torch.cat(bounds)


def faiss_distances(points: Tensor, others: Tensor) -> Tensor | None:
    """Distances of each point to its candidates, by differences in float32.

    Args:
        points: [N, m], float32.
        others: Candidates [N, c]; -1 stands for none.

    Returns:
        Distances [N, c], inf for none; None if squares may have been lost to underflow.
    """
    faiss = load_faiss()
    values, index = points.numpy(), others.contiguous().numpy()
    squares = np.full(index.shape, np.inf, dtype=np.float32)
    pointers = (faiss.swig_ptr(array) for array in (squares, values, values, index))
    with named_errors():
        faiss.fvec_L2sqr_by_idx(*pointers, values.shape[1], *index.shape)
    if squares.min() < _SAFE_SQUARE and not _no_square_underflows(values):
        return None
    return torch.from_numpy(squares).sqrt_()


def _no_square_underflows(values: np.ndarray) -> bool:
    """Whether differences of these float32 numbers have squares that are not below the smallest.

    Numbers that are not 0 and not below 2^-38 differ by at least 2^-62, or not at all.
    """
    # Without its sign a float32 grows with its bits; 0 becomes the largest of them.
    bits = (values.view(np.uint32) & _WITHOUT_SIGN) - np.uint32(1)
    return bool(bits.min() >= _SMALLEST_SAFE)
