"""Points that occur several times: found, searched once, and counted."""

import numpy as np
import pytest
import torch
from neighbor_reference import all_backends, assert_exact, gaussian, integer_grid, recurring_states
from scipy.spatial.distance import cdist

from rllib_rise.entropy import certified_search as search_module
from rllib_rise.entropy import copies as copies_module
from rllib_rise.entropy import neighbor_distances
from rllib_rise.entropy.copies import distinct_points, repeated
from rllib_rise.entropy.grouping import Stack, group_points


def brute_force(x: torch.Tensor, k: int, groups: torch.Tensor | None = None) -> np.ndarray:
    """All distances by scipy, sorted; the last one again where there are too few."""
    labels = np.zeros(len(x)) if groups is None else groups.numpy()
    points, result = x.double().numpy(), np.zeros((len(x), k))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        if len(rows) > 1:
            distances = cdist(points[rows], points[rows])
            np.fill_diagonal(distances, np.inf)
            near = np.sort(distances, axis=1)[:, : len(rows) - 1][:, :k]
            result[rows] = np.pad(near, ((0, 0), (0, k - near.shape[1])), mode="edge")
    return result


def one_hot_views(n: int, distinct: int, cells: int = 49) -> torch.Tensor:
    """Views of a grid world: many equal ones, and many equal distances between different ones."""
    generator = torch.Generator().manual_seed(3)
    kinds = torch.randint(4, (distinct, cells), generator=generator)
    kinds[:, cells // 4 :] = 0
    views = torch.nn.functional.one_hot(kinds, 4).flatten(1).float()
    often = torch.rand(distinct, generator=generator) ** 4
    return views[torch.multinomial(often, n, replacement=True, generator=generator)]


def find(stack: Stack):
    return distinct_points(stack, *search_module._centred(stack.points))


REPEATING = {
    "recurring": lambda: recurring_states(700, 60, 32),
    "recurring far off": lambda: recurring_states(700, 60, 32) + 1e5,
    "recurring pairs": lambda: gaussian(300, 20).repeat(2, 1),
    "fewer distinct than k": lambda: recurring_states(500, 3, 7),
    "two of them": lambda: recurring_states(500, 2, 7),
    "all equal": lambda: torch.full((300, 7), 0.1),
    "one differs": lambda: torch.cat((torch.full((300, 7), 0.1), torch.zeros(1, 7))),
    "views": lambda: one_hot_views(900, 150),
    "grid": lambda: integer_grid(8, 2).repeat(9, 1) / 7,
    "tiny": lambda: recurring_states(400, 50, 9) * 1e-30,
    "huge": lambda: recurring_states(400, 50, 9) * 1e37,
}


@all_backends
@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("name", REPEATING)
def test_distances_among_copies_equal_brute_force(name, k, backend):
    x = REPEATING[name]()
    assert_exact(neighbor_distances(x, k, backend=backend), brute_force(x, k))


@all_backends
@pytest.mark.parametrize("name", ["recurring", "recurring far off", "views", "two of them"])
def test_copies_of_float64_points(name, backend):
    x = REPEATING[name]().double() * 1.1
    assert_exact(neighbor_distances(x, 5, backend=backend), brute_force(x, 5))


@all_backends
def test_copies_count_within_their_group_only(backend):
    x = one_hot_views(900, 40)
    labels = torch.randint(23, (900,), generator=torch.Generator().manual_seed(0)) ** 2
    labels[:300] = 7  # one large, others small and of several sizes, two of single points
    labels[300], labels[301] = -1, -2
    for k in (1, 5, 60):
        found = neighbor_distances(x, k, groups=labels, backend=backend)
        assert_exact(found, brute_force(x, k, labels))


@pytest.mark.parametrize("k", [18, 19, 20, 21, 30])
def test_k_near_and_above_the_number_of_copies(k):
    x = gaussian(5, 6).repeat_interleave(4, dim=0)
    assert_exact(neighbor_distances(x, k), brute_force(x, k))


def test_negative_zeros_are_zeros():
    x = recurring_states(400, 30, 8).round()
    x = torch.where((x == 0) & (torch.arange(400) % 2 == 0)[:, None], -0.0, x)
    assert bool((x.view(torch.int32) == -(2**31)).any())
    assert_exact(neighbor_distances(x, 5), brute_force(x, 5))


@pytest.mark.parametrize("name", ["recurring", "views", "grid", "two of them"])
def test_each_distinct_point_is_searched_once(monkeypatch, name):
    x, sizes = REPEATING[name](), []
    candidates = search_module._candidates

    def record(stack, *args):
        sizes.append(stack.points.shape[1])
        return candidates(stack, *args)

    monkeypatch.setattr(search_module, "_candidates", record)
    neighbor_distances(x, 5)
    assert sizes == [len(np.unique(x.numpy(), axis=0))]


@pytest.mark.parametrize("backend", ["torch", "torch+faiss"])
def test_ties_among_copies_are_certified_without_a_second_search(monkeypatch, backend):
    redone, x = [], recurring_states(1000, 150, 64)
    again = search_module._search_again
    monkeypatch.setattr(
        search_module, "_search_again", lambda *a: redone.append(len(a[2])) or again(*a)
    )
    neighbor_distances(x, 9, backend=backend)
    assert redone == []
    monkeypatch.setattr(search_module, "distinct_points", lambda *_: None)
    neighbor_distances(x, 9, backend=backend)
    assert sum(redone) > 100


def test_the_distinct_points_their_counts_and_places():
    labels = torch.arange(3).repeat_interleave(torch.tensor([40, 64, 50]))
    x = torch.cat((recurring_states(104, 9, 6), torch.ones(50, 6)))
    (stack,) = group_points(len(x), labels).stacks(x)
    found = find(stack)
    assert found is not None
    assert found.stack.counts is not None
    for number, size in enumerate(stack.sizes):
        rows, counts = np.unique(stack.points[number, :size].numpy(), axis=0, return_counts=True)
        many = found.stack.sizes[number]
        ours = found.stack.points[number, :many].numpy()
        order = np.lexsort(ours.T[::-1])
        np.testing.assert_array_equal(ours[order], rows)
        np.testing.assert_array_equal(found.stack.counts[number, :many].numpy()[order], counts)
        assert not found.stack.counts[number, many:].any()
    points = stack.points.flatten(0, 1)
    assert torch.equal(found.stack.points.flatten(0, 1)[found.place], points)
    assert torch.equal(points[found.chosen], found.stack.points.flatten(0, 1))


def test_few_copies_leave_the_points_as_they_are():
    x = gaussian(400, 8)
    assert find(Stack(x[None], [400])) is None
    x[:80] = x[80:160]
    assert find(Stack(x[None], [400])) is None
    x[:120] = x[120:240]
    assert find(Stack(x[None], [400])) is not None


def test_points_that_only_look_like_copies_are_told_apart():
    # Centred as float32, the points of the cluster are all the same.
    x = gaussian(400, 8) * 1e-9
    x[-1] = 1e3
    stack = Stack(x[None], [400])
    centred, squares = search_module._centred(stack.points)
    assert len(centred[0].unique(dim=0)) < 100
    assert distinct_points(stack, centred, squares) is None
    assert_exact(neighbor_distances(x, 3), brute_force(x, 3))


def test_distances_are_repeated_as_often_as_they_occur():
    distances = torch.tensor([[3.0, 1.0, 2.0, torch.inf]])
    times, own = torch.tensor([[5, 2, 1, 0]]), torch.tensor([2])
    found = repeated(distances, times, own, 7)
    assert found.tolist() == [[0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 3.0]]
    assert repeated(distances, times, own - 2, 2).tolist() == [[1.0, 1.0]]


def test_small_sets_of_few_dimensions_are_left_alone():
    x = integer_grid(4, 2).repeat(16, 1)
    assert len(x) == copies_module._SMALL
    assert find(Stack(x[None], [len(x)])) is None
    x = integer_grid(4, 2).repeat(17, 1)
    assert find(Stack(x[None], [len(x)])) is not None
