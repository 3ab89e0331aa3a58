"""Candidates: which points may be the nearest ones, found fast and only approximately.

A search proposes, per query, points with the smallest *approximate* squared distances, and gives a
lower bound on the values of all other points. `certified_search` recomputes the distances of
the candidates exactly and decides from that bound whether a closer point can have been missed.

Here are the searches that run on any device; `cpu_search`, `faiss_search` and `faiss_gpu` have the
faster ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_ELEMENTS = 2**22
"""Entries of one block of the distance matrix; the whole matrix is never held."""

_BLOCK_COLUMNS = 2**14


@dataclass(frozen=True)
class Error:
    """How far a squared distance d^2 from x may be off: the sum of three parts.

    Attributes:
        of_square: Part that grows with d^2.
        of_norm: Part that grows with |x|^2.
        absolute: Part that does not.
    """

    of_square: float
    of_norm: float
    absolute: float


@dataclass(frozen=True)
class Candidates:
    """What a search proposes.

    Attributes:
        index: Other points of the query's set [q, c], by their number among the points of all sets;
            -1 stands for none.
        bound: Lower bound on the approximate squared distances of all other points [q].
        error: Of these.
    """

    index: Tensor
    bound: Tensor
    error: Error


def product_error(dimension: int, dtype: torch.dtype) -> Error:
    """Of `|x|^2 + |y|^2 - 2 x.y` for a y that is closer to x than d.

    With |y| <= |x| + d and S = |x|^2 + |y|^2 the value is off by at most

        2 gamma S,   gamma = (m + 8) u / (1 - (m + 8) u),   u the unit roundoff:

    a scalar product of m terms, summed in whatever order, is off by at most gamma_m |x| |y|, and
    the squared norms by gamma_m |x|^2 and gamma_m |y|^2 (together 2 m u S, as 2 |x| |y| <= S);
    rounding the centred coordinates moves the squared distance by at most 4 u S, and combining the
    three terms adds at most 4 u S. Since (|x| + d)^2 <= 5/4 |x|^2 + 5 d^2, this is not above
    10 gamma d^2 + 4.5 gamma |x|^2; what is above that here covers the rounding of |x|^2 and of the
    comparison itself.
    """
    limits = torch.finfo(dtype)
    share = (dimension + 8) * limits.eps / 2
    gamma = share / (1 - share)
    # Products below the smallest normal number may be flushed to zero.
    return Error(11 * gamma, 5 * gamma, 4 * dimension * limits.tiny)


def difference_error(dimension: int) -> Error:
    """Of a sum of m squared differences of float32 numbers."""
    limits = torch.finfo(torch.float32)
    return Error((dimension + 2) * limits.eps / 2, 0.0, 4 * dimension * limits.tiny)


def without_self(index: Tensor, own: Tensor) -> Tensor:
    """Candidates [q, c] with -1 in the place of the queries [q] themselves."""
    return index.masked_fill(index == own[:, None], -1)


def torch_candidates(points: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Indices of the `width` nearest [n, width], the point itself among them, and bounds [n]."""
    if reduced_matmul_precision():
        points = points.double()
    found = product_candidates(points, points, width)
    return found.index, found.bound.float()


def product_candidates(queries: Tensor, base: Tensor, width: int) -> Candidates:
    """Candidates by `|q|^2 + |x|^2 - 2 q.x` in the dtype of the arguments, on any device.

    Args:
        queries: [q, m].
        base: [n, m].
        width: Candidates per query; all points if there are fewer.
    """
    base_squares = base.square().sum(dim=1)

    def block(rows: Tensor, columns: slice) -> Tensor:
        products = torch.addmm(base_squares[columns], rows, base[columns].T, alpha=-2.0)
        return products.add_(rows.square().sum(dim=1, keepdim=True))

    index, bound = _by_topk(queries, base.shape[0], width, block)
    return Candidates(index, bound, product_error(base.shape[1], base.dtype))


def direct_candidates(queries: Tensor, base: Tensor, width: int) -> Tensor:
    """Indices of the nearest [q, width] by coordinate differences: slow, but none is missed."""

    def block(rows: Tensor, columns: slice) -> Tensor:
        return torch.cdist(rows, base[columns], compute_mode="donot_use_mm_for_euclid_dist")

    return _by_topk(queries, base.shape[0], width, block)[0]


def _by_topk(
    queries: Tensor, num_base: int, width: int, block: Callable[[Tensor, slice], Tensor]
) -> tuple[Tensor, Tensor]:
    """The indices of the smallest [q, width], and the largest value among them [q]."""
    columns = min(num_base, _BLOCK_COLUMNS)
    bounds, indices = [], []
    for rows in queries.split(max(1, BLOCK_ELEMENTS // columns)):
        best: Tensor | None = None
        best_index: Tensor | None = None
        for start in range(0, num_base, columns):
            values = block(rows, slice(start, min(start + columns, num_base)))
            near, index = values.topk(min(width, values.shape[1]), dim=1, largest=False)
            index += start
            if best is not None and best_index is not None:
                near = torch.cat((best, near), dim=1)
                index = torch.cat((best_index, index), dim=1)
                near, kept = near.topk(min(width, near.shape[1]), dim=1, largest=False)
                index = index.gather(1, kept)
            best, best_index = near, index
        assert best is not None
        assert best_index is not None
        bounds.append(best[:, -1].clone())
        indices.append(best_index)
    return torch.cat(indices), torch.cat(bounds)


def reduced_matmul_precision() -> bool:
    """Whether torch may round the factors of a float32 product."""
    # TF32 or bfloat16 products would void the error bound of the certification. Their switches are
    # global to the process, so they are read and not touched. Torch raises where its old and its
    # new switches were mixed; reduced precision is the safe answer then.
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:
        return True
