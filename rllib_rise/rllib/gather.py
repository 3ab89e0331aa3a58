"""Rows of all learners, for bonuses that compare transitions with each other."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

Gather = Callable[[Tensor | None], tuple[Tensor, slice]]


def gather_rows(
    values: Tensor | None, *, device: torch.device | str = "cpu"
) -> tuple[Tensor, slice]:
    """`[n, ...]` of this learner to `[N, ...]` of all, in their order, and where its own are.

    A collective: every learner must call it, as often as the others, with any number of rows.
    None is for a learner that has no rows and cannot know their shape; at least one must know.
    """
    told: list[tuple[int, torch.dtype, tuple[int, ...]] | None] = [None] * dist.get_world_size()
    mine = None if values is None else (len(values), values.dtype, tuple(values.shape[1:]))
    dist.all_gather_object(told, mine)
    _, dtype, shape = next(one for one in told if one is not None)
    counts = [0 if one is None else one[0] for one in told]
    # gloo wants equal shapes, and no truth values: shorter parts are padded, and cut again.
    sent = torch.uint8 if dtype == torch.bool else dtype
    padded = torch.zeros((max(counts), *shape), dtype=sent, device=device)
    if values is not None:
        padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    rank = dist.get_rank()
    start = sum(counts[:rank])
    rows = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
    return rows.to(dtype), slice(start, start + counts[rank])
