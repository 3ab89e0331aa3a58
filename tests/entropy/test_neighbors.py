"""Neighbour distances against scikit-learn, and their properties."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbor_reference import (
    ADVERSARIAL,
    BACKENDS,
    all_backends,
    assert_exact,
    cluster_with_outlier,
    gaussian,
    grouped_reference,
    reference,
    with_duplicates,
)

from rllib_rise.entropy import (
    group_points,
    has_k_others,
    kth_neighbor_distance,
    neighbor_distances,
    renyi_reward,
)
from rllib_rise.errors import ConfigError, NonFiniteError


@all_backends
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_distances_equal_scikit_learn_on_adversarial_data(name, k, backend):
    x = ADVERSARIAL[name]()
    assert_exact(neighbor_distances(x, k, backend=backend), reference(x, k))


@all_backends
@pytest.mark.parametrize("name", ["offset 1e6", "outlier", "recurring states", "grid in 2-d"])
def test_float64_points_give_float64_precision(name, backend):
    x = ADVERSARIAL[name]().double() * 1.1 + 1e-9
    found = neighbor_distances(x, 4, backend=backend)
    assert found.dtype == torch.float64
    assert_exact(found, reference(x, 4))


@all_backends
@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_float64_points_of_extreme_magnitude_neither_overflow_nor_underflow(scale, backend):
    x = gaussian(100, 3, dtype=torch.float64)
    found = neighbor_distances(x * scale, 3, backend=backend) / scale
    np.testing.assert_allclose(found.numpy(), reference(x, 3), rtol=1e-12)


@all_backends
@pytest.mark.parametrize("k", [9, 10, 11, 19, 20, 50])
def test_k_near_and_above_n_repeats_the_farthest_point(k, backend):
    x = with_duplicates(20, 6)
    assert_exact(neighbor_distances(x, k, backend=backend), reference(x, k))


@all_backends
def test_groups_are_searched_separately_when_uneven_interleaved_and_lone(backend):
    sizes = {7: 120, -3: 1, 100: 2, 0: 5, 4: 9, 5: 60, 6: 1}
    labels = torch.cat([torch.full((n,), label) for label, n in sizes.items()])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    x = with_duplicates(len(labels), 5)
    for k in (1, 4, 8, 130):
        found = neighbor_distances(x, k, groups=labels, backend=backend)
        assert_exact(found, grouped_reference(x, k, labels))
        clipped = int((~has_k_others(len(x), k, labels)).sum())
        assert clipped == sum(n for n in sizes.values() if n - 1 < k)


@all_backends
def test_groups_far_apart_in_place_and_in_scale_do_not_spoil_each_other(backend):
    labels = torch.arange(300) % 3
    scales = torch.tensor([1e-25, 1.0, 1e25])[labels]
    x = gaussian(300, 6) * scales[:, None] + 10 * scales[:, None]
    found = neighbor_distances(x, 3, groups=labels, backend=backend)
    assert_exact(found, grouped_reference(x, 3, labels))


@all_backends
def test_groups_that_need_the_fallback_are_exact(backend):
    labels = torch.arange(240) % 4
    x = torch.empty(240, 8)
    for label in range(4):
        x[labels == label] = cluster_with_outlier(60, 8, 10.0 ** -(3 * label), 10.0**label)
    found = neighbor_distances(x, 3, groups=labels, backend=backend)
    assert_exact(found, grouped_reference(x, 3, labels))


def test_lone_points_and_empty_sets_have_defined_results():
    assert neighbor_distances(torch.ones(1, 3), 4).tolist() == [[0.0] * 4]
    assert neighbor_distances(torch.empty(0, 3), 4).shape == (0, 4)
    empty_labels = torch.empty(0, dtype=torch.int64)
    assert neighbor_distances(torch.empty(0, 3), 4, groups=empty_labels).shape == (0, 4)
    assert kth_neighbor_distance(torch.empty(0, 3), 4).shape == (0,)
    lone = neighbor_distances(gaussian(3, 2), 2, groups=torch.arange(3))
    assert lone.tolist() == [[0.0, 0.0]] * 3
    assert has_k_others(3, 2).tolist() == [True] * 3
    assert has_k_others(3, 3).tolist() == [False] * 3
    assert has_k_others(0, 3).tolist() == []


def test_kth_distance_is_the_last_column_and_counts_other_points():
    x = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    assert kth_neighbor_distance(x, 1).tolist() == [1.0, 1.0, 2.0, 4.0]
    assert kth_neighbor_distance(x, 2).tolist() == [3.0, 2.0, 3.0, 6.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.uint8])
def test_other_dtypes_are_computed_in_float32(dtype):
    x = (torch.arange(60).reshape(20, 3) % 17).to(dtype)
    found = neighbor_distances(x, 2)
    assert found.dtype == torch.float32
    assert_exact(found, reference(x.float(), 2))


def test_result_carries_no_gradient_and_input_is_left_alone():
    x = gaussian(50, 4).requires_grad_()
    before = x.detach().clone()
    assert not neighbor_distances(x, 3).requires_grad
    assert torch.equal(x.detach(), before)


def test_transposed_and_strided_points_are_accepted():
    x = gaussian(12, 300).T[::2, ::3]
    for backend in BACKENDS:
        assert_exact(neighbor_distances(x, 3, backend=backend), reference(x, 3))


def test_autocast_and_reduced_matmul_precision_do_not_change_the_result():
    x = gaussian(300, 64)
    expected = neighbor_distances(x, 5, backend="torch")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(neighbor_distances(x, 5, backend="torch"), expected)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(neighbor_distances(x, 5, backend="torch"), expected)
    finally:
        torch.set_float32_matmul_precision(before)


grid_points = st.tuples(st.integers(2, 40), st.integers(1, 4)).flatmap(
    lambda shape: hnp.arrays(np.int32, shape, elements=st.integers(-1000, 1000))
)
float_points = st.tuples(st.integers(2, 40), st.integers(1, 4)).flatmap(
    lambda shape: hnp.arrays(
        np.float32, shape, elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
    )
)
quick = settings(max_examples=50, deadline=None)


@quick
@given(float_points, st.integers(1, 6), st.sampled_from(BACKENDS))
def test_arbitrary_points_agree_with_scikit_learn(points, k, backend):
    x = torch.from_numpy(points)
    assert_exact(neighbor_distances(x, k, backend=backend), reference(x, k))


@quick
@given(float_points, st.integers(1, 6), st.sampled_from(BACKENDS), st.randoms())
def test_permuting_points_permutes_distances(points, k, backend, random):
    order = list(range(len(points)))
    random.shuffle(order)
    x, groups = torch.from_numpy(points), torch.arange(len(points)) % 2
    for labels in (None, groups):
        shuffled = None if labels is None else labels[order]
        found = neighbor_distances(x[order], k, groups=shuffled, backend=backend)
        expected = neighbor_distances(x, k, groups=labels, backend=backend)[order]
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


@quick
@given(grid_points, st.integers(1, 6), st.sampled_from(BACKENDS), st.integers(-(2**22), 2**22))
def test_translating_points_leaves_distances(points, k, backend, shift):
    x = torch.from_numpy(points).float()
    found = neighbor_distances(x + shift, k, backend=backend)
    torch.testing.assert_close(found, neighbor_distances(x, k, backend=backend), rtol=1e-6, atol=0)


@quick
@given(
    grid_points,
    st.integers(1, 6),
    st.sampled_from(BACKENDS),
    st.integers(-100, 100),
    st.floats(0, 0.99),
)
def test_scaling_points_by_c_scales_the_reward_by_c_to_the_one_minus_alpha(
    points, k, backend, exponent, alpha
):
    x, c = torch.from_numpy(points).float(), 2.0**exponent
    before = kth_neighbor_distance(x, k, backend=backend)
    after = kth_neighbor_distance(x * c, k, backend=backend)
    torch.testing.assert_close(after, before * c, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        renyi_reward(after, alpha=alpha),
        renyi_reward(before, alpha=alpha) * c ** (1 - alpha),
        rtol=1e-4,
        atol=0,
    )


@pytest.mark.parametrize("k", [0, -1, 1.0, True, None, "3", 10**9])
def test_k_that_is_no_positive_integer_of_sensible_size_is_refused(k):
    with pytest.raises(ConfigError, match="k="):
        neighbor_distances(gaussian(10, 2), k)


@pytest.mark.parametrize("shape", [(10,), (10, 0), (2, 3, 4)])
def test_points_of_wrong_shape_are_refused(shape):
    with pytest.raises(ConfigError, match="x is"):
        neighbor_distances(torch.zeros(shape), 1)


def test_non_finite_points_are_refused_with_their_number():
    x = gaussian(10, 3)
    x[2, 1], x[5, 0], x[7, 2] = torch.nan, torch.inf, -torch.inf
    with pytest.raises(NonFiniteError, match="3 NaN or infinite values of 30"):
        neighbor_distances(x, 1)


def test_groups_made_beforehand_are_the_same_groups():
    labels = torch.tensor([3, 1, 3, 1, 1, 2, 3, 3])
    x, groups = gaussian(8, 2), group_points(8, labels)
    found = neighbor_distances(x, 2, groups=groups)
    assert torch.equal(found, neighbor_distances(x, 2, groups=labels))
    assert torch.equal(has_k_others(8, 2, groups), has_k_others(8, 2, labels))
    with pytest.raises(ConfigError, match="8 points, and there are 5"):
        neighbor_distances(x[:5], 2, groups=groups)


@pytest.mark.parametrize(
    "groups",
    [torch.zeros(9, dtype=torch.int64), torch.zeros(10), torch.zeros(10, dtype=torch.bool)],
)
def test_groups_that_are_no_integer_per_point_are_refused(groups):
    with pytest.raises(ConfigError, match="groups"):
        neighbor_distances(gaussian(10, 2), 1, groups=groups)
