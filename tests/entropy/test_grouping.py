"""Groups of points, and how they are put side by side."""

import pytest
import torch
from neighbor_reference import gaussian

from rllib_rise.entropy.grouping import group_points


def test_groups_in_their_order_are_not_copied():
    points = gaussian(12, 3)
    for labels in (None, torch.tensor([1, 1, 1, 4, 4, 4, 7, 7, 7, 9, 9, 9])):
        groups = group_points(12, labels)
        (stack,) = groups.stacks(points)
        assert groups.order is None
        assert stack.rows is None
        assert stack.own_points() is None
        assert stack.points.data_ptr() == points.data_ptr()
        assert stack.points.shape == ((1, 12, 3) if labels is None else (4, 3, 3))


@pytest.mark.parametrize("seed", range(3))
def test_stacks_hold_every_point_once_beside_points_of_its_own_group(seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(12, (1500,), generator=generator).square() % 31
    labels[:700] = 3
    points = torch.randn(1500, 2, generator=generator)
    seen = []
    for stack in group_points(1500, labels).stacks(points):
        assert torch.equal(stack.points, points[stack.rows])
        own = stack.own_points()
        own = torch.ones(stack.rows.shape, dtype=torch.bool) if own is None else own
        assert own.sum(1).tolist() == stack.sizes
        assert stack.points.shape[1] == max(stack.sizes) < 2 * min(stack.sizes)
        for rows, real in zip(stack.rows, own, strict=True):
            assert len(labels[rows].unique()) == 1
            seen += rows[real].tolist()
            # What fills a set up is a point of its own: centring is not misled.
            assert set(rows[~real].tolist()) <= {int(rows[real][-1])}
        torch.testing.assert_close(stack.fill(own.float(), 9.0) == 9, ~own)
    assert sorted(seen) == list(range(1500))


def test_which_points_have_enough_company():
    labels = torch.tensor([5, 2, 5, 5, 2, 0])
    groups = group_points(6, labels)
    assert groups.has_more_than(0).tolist() == [True] * 6
    assert groups.has_more_than(1).tolist() == [True] * 5 + [False]
    assert groups.has_more_than(2).tolist() == [True, False, True, True, False, False]
    assert group_points(0, None).has_more_than(1).tolist() == []
    assert group_points(0, labels[:0]).has_more_than(1).tolist() == []
