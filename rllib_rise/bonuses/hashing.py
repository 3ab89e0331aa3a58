"""Observations as 64-bit codes, equal where observations count as the same state."""

from __future__ import annotations

import torch
from torch import Tensor

from rllib_rise.bonuses.inputs import flat

# Odd multipliers of 64 bits, from the digits of the golden ratio and of splitmix64.
_FIRST, _SECOND, _THIRD = -7046029254386353131, -4658895280553007687, -7723592293110705685
_ROWS = 256


def cell_codes(obs: Tensor, cell: float) -> Tensor:
    """One code for each cell of a grid with cells `cell` wide, `[N]`; bytes are in [0, 1].

    Values lie in the middle of cells when they are multiples of the width, so that rounding
    errors do not tear a state apart.
    """
    return torch.cat([_cell_codes(chunk, cell) for chunk in obs.split(_ROWS)])


def _cell_codes(obs: Tensor, cell: float) -> Tensor:
    x = flat(obs) if obs.dtype == torch.uint8 else flat(obs).double()
    grid = (x / cell).round().long()
    # Multilinear: an odd multiplier of its own for each number, sums modulo 2^64.
    places = scramble(torch.arange(1, grid.shape[1] + 1, device=grid.device) * _FIRST) | 1
    return scramble((grid * places).sum(1))


def sign_codes(obs: Tensor, directions: Tensor, center: Tensor) -> Tensor:
    """SimHash: the signs of projections on `directions`, `[D, bits]`, as bits of a code, `[N]`.

    Args:
        obs: Observations, `[N, ...]`.
        directions: At most 63.
        center: Where the projections are seen from, `[D]`.
    """
    places = torch.arange(directions.shape[1], device=directions.device)
    signs = torch.cat([(flat(chunk) - center) @ directions > 0 for chunk in obs.split(_ROWS)])
    return scramble((signs.long() << places).sum(1))


def scramble(codes: Tensor) -> Tensor:
    """A bijection of 64-bit integers in which every bit depends on all (as in splitmix64)."""
    codes = (codes ^ _logical_shift(codes, 30)) * _SECOND
    codes = (codes ^ _logical_shift(codes, 27)) * _THIRD
    return codes ^ _logical_shift(codes, 31)


def _logical_shift(codes: Tensor, bits: int) -> Tensor:
    return (codes >> bits) & ((1 << (64 - bits)) - 1)
