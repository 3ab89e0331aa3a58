"""Points that are neighbours only of the points of their own group."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rllib_rise.errors import ConfigError


@dataclass(frozen=True)
class Groups:
    """Points sorted by group: rows `starts[g] : starts[g] + sizes[g]` are group g.

    Attributes:
        order: Original index of each sorted row [N]; None if the points stay as they are.
        member: Group of each sorted row [N].
        sizes: Points per group.
        starts: First sorted row of each group.
    """

    order: Tensor | None
    member: Tensor
    sizes: list[int]
    starts: list[int]

    def mean(self, values: Tensor) -> Tensor:
        """Per row, the mean of its group [N, m] (or [1, m]), summed in float64."""
        if len(self.sizes) == 1:
            return values.mean(dim=0, keepdim=True, dtype=torch.float64).to(values.dtype)
        counts = torch.tensor(self.sizes, dtype=torch.float64, device=values.device)
        sums = counts.new_zeros(len(self.sizes), values.shape[1])
        sums.index_add_(0, self.member, values.double())
        return (sums / counts[:, None]).to(values.dtype)[self.member]

    def max(self, values: Tensor) -> Tensor:
        """The maximum [G] over each group of non-negative values [N]."""
        if len(self.sizes) == 1:
            return values.amax().reshape(1)
        return values.new_zeros(len(self.sizes)).scatter_reduce(0, self.member, values, "amax")


def group_points(num_points: int, groups: Tensor | None, device: torch.device) -> Groups:
    """Validates labels and sorts the points by them.

    Args:
        num_points: N.
        groups: Integer labels [N], in any order, or None for a single group.
        device: Where the points are.

    Returns:
        The groups, in ascending order of their labels.

    Raises:
        ConfigError: The labels are not integers or not one per point.
    """
    if groups is None:
        member = torch.zeros(num_points, dtype=torch.int64, device=device)
        return Groups(None, member, [num_points], [0])
    integral = not (groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool)
    if groups.shape != (num_points,) or not integral:
        raise ConfigError(
            f"groups is {tuple(groups.shape)} {groups.dtype}; pass integer labels of shape "
            f"({num_points},), one per point"
        )
    labels, order = groups.detach().to(device).sort(stable=True)
    _, member, counts = labels.unique_consecutive(return_inverse=True, return_counts=True)
    starts = counts.cumsum(0) - counts
    return Groups(order, member, counts.tolist(), starts.tolist())
