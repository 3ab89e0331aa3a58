"""Candidates on the CPU: what they miss is not below their bound, and the bound is not far off."""

import pytest
import torch
from neighbor_reference import gaussian, recurring_states

from rllib_rise.entropy import cpu_search as search_module
from rllib_rise.entropy.cpu_search import cpu_candidates
from rllib_rise.entropy.grouping import Stack, group_points


def propose(stack: Stack, width: int):
    centred = (stack.points - stack.points.mean(dim=1, keepdim=True)).float()
    return cpu_candidates(stack, centred, centred.square().sum(dim=2), width), centred


def exact_squares(stack: Stack) -> torch.Tensor:
    """[g, n, n] in float64; inf for the point itself and for what is not the set's own."""
    points = stack.points.double()
    squares = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").square_()
    squares.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    own = stack.own_points()
    return squares if own is None else squares.masked_fill(~own[:, None], torch.inf)


def assert_bounded(stack: Stack, width: int) -> None:
    found, centred = propose(stack, width)
    num_sets, num_points, _ = stack.points.shape
    squares = exact_squares(stack).flatten(0, 1)
    own = stack.own_points()
    rows = torch.arange(num_sets * num_points)
    rows = rows if own is None else rows[own.flatten()]
    place = found.index - (torch.arange(num_sets * num_points) // num_points * num_points)[:, None]
    place = place.where(found.index >= 0, num_points)
    fetched = torch.zeros(len(squares), num_points + 1, dtype=torch.bool).scatter_(1, place, True)
    fetched, others = fetched[rows, :num_points], squares[rows]
    norms = centred.double().square().sum(dim=2).flatten()[rows, None]
    error = found.error
    allowed = error.of_square * others + error.of_norm * norms + error.absolute
    bound = found.bound.double()[rows, None]
    assert bool((others[fetched] < torch.inf).all())
    assert bool((fetched.sum(1) == (others < torch.inf).sum(1).clamp(max=width)).all())
    assert bool((fetched | (others == torch.inf) | (others + allowed >= bound)).all())
    # Not so low that it would certify nothing: what was fetched reaches up to it.
    finite = bound.squeeze(1) < torch.inf
    reached = others.masked_fill(~fetched, 0).amax(dim=1)
    slack = allowed.masked_fill(others == torch.inf, 0).amax(dim=1) + 2.0**-13 * reached
    assert bool((bound.squeeze(1) - reached <= slack)[finite].all())
    assert bool((reached - bound.squeeze(1) <= slack)[finite].all())


@pytest.mark.parametrize("m", [1, 2, 3, 4, 32, 128, 512])
@pytest.mark.parametrize("kind", ["gaussian", "positive", "outlier", "recurring"])
def test_what_is_missed_is_not_below_the_bound(kind, m):
    points = recurring_states(400, 60, m) if kind == "recurring" else gaussian(400, m)
    if kind == "positive":
        points = points.abs()
    if kind == "outlier":
        points[0] *= 1e3
    assert_bounded(Stack(points[None], [400]), 20)


@pytest.mark.parametrize("m", [2, 7])
@pytest.mark.parametrize("num_points", [257, 1023, 2049, 4500])
def test_rows_and_columns_in_several_blocks(num_points, m):
    assert_bounded(Stack(gaussian(num_points, m)[None], [num_points]), 8)


@pytest.mark.parametrize("m", [2, 7])
def test_sets_of_several_sizes_side_by_side(monkeypatch, m):
    labels = torch.arange(25).repeat_interleave(torch.arange(16, 41))
    points = gaussian(len(labels), m)
    for elements in (2**20, 2**13, 2**10):  # all sets at once, a few, parts of one
        monkeypatch.setattr(search_module, "BLOCK_ELEMENTS", elements)
        for stack in group_points(len(labels), labels).stacks(points):
            assert_bounded(stack, 8)


def test_sets_that_are_smaller_than_the_width_get_all_their_points():
    labels = torch.arange(3).repeat_interleave(torch.tensor([33, 40, 64]))
    (stack,) = group_points(len(labels), labels).stacks(gaussian(len(labels), 5))
    assert_bounded(stack, 50)


def test_wide_searches_take_wide_blocks(monkeypatch):
    monkeypatch.setattr(search_module, "_COLUMNS", 64)
    assert_bounded(Stack(gaussian(700, 6)[None], [700]), 150)


@pytest.mark.parametrize("m", [3, 8])
def test_blocks_are_of_bounded_size(monkeypatch, m):
    sizes = []
    smallest = search_module.smallest_entries

    def record(values, width, *, exact):
        sizes.append(values.numel())
        return smallest(values, width, exact=exact)

    monkeypatch.setattr(search_module, "smallest_entries", record)
    monkeypatch.setattr(search_module, "BLOCK_ELEMENTS", 2**16)
    propose(Stack(gaussian(3000, m)[None], [3000]), 8)
    assert max(sizes) <= 2**16
    assert sum(sizes) >= 3000**2
