"""Rows of all learners, for bonuses that compare transitions with each other."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def gather_rows(values: Tensor) -> tuple[Tensor, slice]:
    """`[n, ...]` of this learner to `[N, ...]` of all, in their order, and where its own are.

    A collective: every learner must call it, as often as the others, with any number of rows.
    """
    sizes = [
        torch.zeros((), dtype=torch.int64, device=values.device)
        for _ in range(dist.get_world_size())
    ]
    dist.all_gather(sizes, torch.tensor(len(values), device=values.device))
    counts = [int(size) for size in sizes]
    # gloo wants equal shapes: shorter parts are padded, and cut again.
    padded = values.new_zeros((max(counts), *values.shape[1:]))
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    rank = dist.get_rank()
    start = sum(counts[:rank])
    rows = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
    return rows, slice(start, start + counts[rank])
