"""Points that are neighbours only of the points of their own group."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rllib_rise.errors import ConfigError

# Groups above this size are searched one by one: for them, work on filled-up rows costs more than
# the calls that it saves.
_LARGE = 512


@dataclass(frozen=True)
class Stack:
    """Sets of points to be searched each for itself, side by side.

    Attributes:
        points: [g, n, m]. Behind a set's own points come repetitions of its last one.
        sizes: How many of the n points are a set's own.
        rows: Which rows of the caller's points these are [g, n]; None if all of them, in order.
        counts: How often each point occurs in its set [g, n]; None if once, or as often as it is
            among the points.
    """

    points: Tensor
    sizes: list[int]
    rows: Tensor | None = None
    counts: Tensor | None = None

    def own_points(self) -> Tensor | None:
        """Which points are a set's own [g, n]; None if all are."""
        num_points, device = self.points.shape[1], self.points.device
        if min(self.sizes) == num_points:
            return None
        sizes = torch.tensor(self.sizes, device=device)[:, None]
        return torch.arange(num_points, device=device) < sizes

    def fill(self, values: Tensor, value: float) -> Tensor:
        """Values [g, n] or [g, n, m], replaced where points are not a set's own."""
        own = self.own_points()
        if own is None:
            return values
        return values.masked_fill(~own if values.ndim == 2 else ~own[:, :, None], value)


@dataclass(frozen=True)
class Groups:
    """Points sorted by group: rows `starts[g] : starts[g] + sizes[g]` are group g.

    Attributes:
        order: Original index of each sorted row [N], on the CPU; None if they come sorted.
        sizes: Points per group.
        starts: First sorted row of each group.
    """

    order: Tensor | None
    sizes: list[int]
    starts: list[int]

    def stacks(self, points: Tensor) -> Iterator[Stack]:
        """The groups of points [N, m], those of about the same size together."""
        if self.order is None and len(set(self.sizes)) == 1:
            yield Stack(points.unflatten(0, (len(self.sizes), self.sizes[0])), self.sizes)
            return
        alike: dict[int, list[int]] = {}
        for group, size in enumerate(self.sizes):
            length = size if size > _LARGE else 1 << (size - 1).bit_length()
            alike.setdefault(length, []).append(group)
        for chosen in alike.values():
            sizes = [self.sizes[group] for group in chosen]
            last = torch.tensor(sizes, device=points.device)[:, None] - 1
            starts = torch.tensor([self.starts[group] for group in chosen], device=points.device)
            place = torch.arange(max(sizes), device=points.device)
            rows = starts[:, None] + torch.minimum(place, last)
            if self.order is not None:
                rows = self.order.to(points.device)[rows]
            yield Stack(points[rows], sizes, rows)

    def has_more_than(self, k: int) -> Tensor:
        """Which points' groups have more than k points [N], in the original order, on the CPU."""
        if all(size > k for size in self.sizes):
            return torch.ones(sum(self.sizes), dtype=torch.bool)
        sizes = torch.tensor(self.sizes)
        enough = (sizes > k).repeat_interleave(sizes)
        if self.order is None:
            return enough
        return torch.empty_like(enough).index_copy_(0, self.order, enough)


def group_points(num_points: int, groups: Tensor | None) -> Groups:
    """Validates labels and sorts the points by them.

    Args:
        num_points: N.
        groups: Integer labels [N], in any order, or None for a single group.

    Returns:
        The groups, in ascending order of their labels.

    Raises:
        ConfigError: The labels are not integers or not one per point.
    """
    if groups is None:
        return Groups(None, [num_points], [0])
    integral = not (groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool)
    if groups.shape != (num_points,) or not integral:
        raise ConfigError(
            f"groups is {tuple(groups.shape)} {groups.dtype}; pass integer labels of shape "
            f"({num_points},), one per point"
        )
    labels, order = groups.detach().cpu().numpy(), None
    if (labels[1:] < labels[:-1]).any():
        places = labels.argsort(kind="stable")
        labels, order = labels[places], torch.from_numpy(places)
    starts = [0, *(np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist()] if num_points else []
    sizes = [end - start for start, end in itertools.pairwise([*starts, num_points])]
    return Groups(order, sizes, starts)
