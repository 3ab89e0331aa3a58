"""Points that occur several times, searched once.

An agent that stands still, or walks in a small world, sees the same again and again. Equal points
have the same neighbours, so each is searched once and counts as often as it occurs: if x occurs c
times and its nearest distinct others, at d_1 <= d_2 <= ..., occur c_1, c_2, ... times, then the
distances from x are

    0 (c - 1 times), d_1 (c_1 times), d_2 (c_2 times), ...

Less is searched, and more of it is sure: copies fill the first k places, which lets the k-th
distance fall far below what a point beyond the candidates has, whereas k candidates that are all
copies of one another leave it at a tie.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rllib_rise.entropy.cpu_search import FEW_DIMENSIONS
from rllib_rise.entropy.grouping import Stack

# Below this share of copies, what is saved is not worth the sorting and comparing. Nor is it for
# small sets of few dimensions: they are searched by differences, which decide ties by themselves.
_LEAST_SHARE = 0.25
_SMALL = 256


@dataclass(frozen=True)
class Distinct:
    """The distinct points of a stack.

    Attributes:
        stack: These, with their counts.
        chosen: Which of all points they are [g d], by their number among the points of all sets.
        place: Which of the distinct ones each point is [g n], likewise.
    """

    stack: Stack
    chosen: Tensor
    place: Tensor


def distinct_points(stack: Stack, centred: Tensor, squares: Tensor) -> Distinct | None:
    """Finds copies by numbers that equal points share, and makes sure by comparing the points.

    Copies that go unnoticed cost time and nothing else, for they are neighbours like others; so do
    different points with the same numbers, for which the search is left as it is.

    Args:
        stack: Sets of points.
        centred: These [g, n, m] about the origin, as float32.
        squares: Squared norms of the centred ones [g, n].

    Returns:
        The distinct points; None if too few are copies.
    """
    num_sets, num_points, dimension = centred.shape
    if dimension <= FEW_DIMENSIONS and num_points <= _SMALL:
        return None
    most = (1 - _LEAST_SHARE) * sum(stack.sizes)
    # The squares are there already, and ordinary data is done with here; NumPy is fast at it.
    ordered = np.sort(squares.cpu().numpy(), axis=1)
    if num_sets + np.count_nonzero(ordered[:, 1:] != ordered[:, :-1]) > most:
        return None
    # Sines are no multiples of each other: lattices have many points of equal norm, but hardly two
    # with the same sum of these.
    sums = centred @ torch.arange(1, dimension + 1, device=centred.device).sin()
    keys, order = torch.stack((squares, sums), dim=2).view(torch.int64).squeeze(2).sort(dim=1)
    # How many different keys are before an entry's own.
    number = torch.nn.functional.pad((keys[:, 1:] != keys[:, :-1]).cumsum(dim=1), (1, 0))
    last = number[:, -1:]
    if int((last + 1).sum()) > most:
        return None
    sizes = (last + 1).flatten().tolist()
    starts = torch.arange(num_sets, device=centred.device)[:, None]
    # Points that repeat a set's last one to fill it up are copies, too, but do not count.
    own, place = stack.own_points(), torch.empty_like(order).scatter_(1, order, number)
    ones = torch.ones_like(place) if own is None else own.long()
    counts = torch.zeros_like(place).scatter_add_(1, place, ones)[:, : max(sizes)]
    chosen = torch.zeros_like(order).scatter_(1, number, order)
    filled = torch.arange(max(sizes), device=last.device).minimum(last)
    chosen = (chosen.gather(1, filled) + starts * num_points).flatten()
    place = (place + starts * max(sizes)).flatten()
    points = stack.points.flatten(0, 1)
    if not torch.equal(points[chosen[place]], points):
        return None
    distinct = points[chosen].unflatten(0, (num_sets, max(sizes)))
    return Distinct(Stack(distinct, sizes, counts=counts), chosen, place)


def repeated(distances: Tensor, times: Tensor, own_times: Tensor, reach: int) -> Tensor:
    """The `reach` smallest distances, each as often as it occurs.

    Args:
        distances: To distinct others [Q, c].
        times: How often these occur [Q, c].
        own_times: How often a query occurs besides itself [Q].
        reach: How many.

    Returns:
        Ascending distances [Q, reach]; the largest again where there are too few.
    """
    near, order = distances.sort(dim=1)
    near = torch.nn.functional.pad(near, (1, 0))
    up_to = torch.cat((own_times[:, None], times.gather(1, order)), dim=1).cumsum(dim=1)
    wanted = torch.arange(1, reach + 1, device=near.device).repeat(len(near), 1)
    place = torch.searchsorted(up_to, wanted).clamp_(max=near.shape[1] - 1)
    return near.gather(1, place)
