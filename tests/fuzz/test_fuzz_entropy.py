"""Neighbours, estimators and rewards for any tensor: finite and in order, or refused."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import strategies as st
from strategies import anything, counts, labels, mostly, orders, points, tensors
from tiers import fuzz
from torch import Tensor

from rllib_rise.entropy import (
    has_k_others,
    intrinsic_dimension,
    kth_neighbor_distance,
    neighbor_distances,
    renyi_entropy,
    renyi_entropy_from_distances,
    renyi_reward,
    search_k,
)

SEARCHES = st.sampled_from(["auto", "torch", "faiss", "torch+faiss"])
ALL_BACKENDS = mostly(SEARCHES, st.sampled_from(["faiss-gpu", "cuda", "", None, 1, []]))
FORMS = st.sampled_from(["paper", "box-cox", "intrinsic-dim"])
FEW_NEIGHBORS = st.integers(1, 6)
RTOL = {torch.float32: 1e-6, torch.float64: 2e-12}


def ascending(shapes: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[Tensor]:
    """Distances of the 1st..k-th neighbours, or what pretends to be."""
    wrong = st.sampled_from([(), (2, 2, 2), (3, 0)])
    signed = tensors(mostly(shapes, wrong)).map(lambda x: x.sort(dim=-1).values if x.ndim else x)
    unsigned = signed.map(lambda x: x if x.dtype == torch.bool else x.abs())
    return mostly(unsigned.map(lambda x: x.sort(dim=-1).values if x.ndim else x), signed)


NEAREST = ascending(st.tuples(st.integers(0, 12), st.integers(1, 5)))
KTH = ascending(st.tuples(st.integers(0, 12)))


def sound(result: Tensor, x: Tensor, shape: tuple[int, ...]) -> None:
    """Finite, of this shape, float64 where the input is and else float32."""
    assert result.shape == shape
    assert result.dtype == (torch.float64 if x.dtype == torch.float64 else torch.float32)
    assert result.isfinite().all()


def slow_distances(x: Tensor, k: int, groups: Tensor | None = None) -> np.ndarray:
    """By differences in float64, of points brought near 1; clipped as documented."""
    kept = (x if x.dtype == torch.float64 else x.float()).double().numpy()
    # A power of two, so that nothing is rounded.
    scale = math.ldexp(1.0, math.frexp(float(np.abs(kept).max(initial=0)))[1] - 1)
    found = np.zeros((len(kept), k))
    for row in range(len(kept)):
        others = np.arange(len(kept)) != row
        if groups is not None:
            others &= (groups == groups[row]).numpy()
        gaps = (kept[others] / scale - kept[row] / scale).reshape(-1, kept.shape[1])
        nearest = np.sort(np.linalg.norm(gaps, axis=1))[:k]
        if len(nearest):
            found[row] = np.pad(nearest, (0, k - len(nearest)), mode="edge")
    with np.errstate(over="ignore"):
        return found * scale


@fuzz(slow=1500, x=points(), k=counts, backend=ALL_BACKENDS)
def test_distances_are_finite_and_ascending(x, k, backend):
    found = neighbor_distances(x, k, backend=backend)
    sound(found, x, (len(x), k))
    assert (found >= 0).all()
    assert (found.diff(dim=1) >= 0).all()
    last = kth_neighbor_distance(x, k, backend=backend)
    assert torch.equal(last, found[:, -1])


@fuzz(slow=1500, data=st.data(), x=points(), k=FEW_NEIGHBORS, backend=SEARCHES)
def test_distances_are_those_of_a_slow_search(data, x, k, backend):
    grouped = x.ndim == 2 and data.draw(st.booleans())
    groups = data.draw(labels(len(x))) if grouped else None
    found = neighbor_distances(x, k, groups=groups, backend=backend)
    sound(found, x, (len(x), k))
    assert has_k_others(len(x), k, groups).shape == (len(x),)
    expected = slow_distances(x, k, groups).clip(max=torch.finfo(found.dtype).max)
    radius = float(x.double().abs().max()) if x.numel() else 0.0
    smallest = torch.finfo(found.dtype).smallest_normal * torch.finfo(found.dtype).eps
    lost = 2e-150 * radius if found.dtype == torch.float64 else 0.0
    np.testing.assert_allclose(found, expected, rtol=RTOL[found.dtype], atol=smallest + lost)


@fuzz(slow=1000, x=points(), alpha=orders, k=counts, backend=SEARCHES)
def test_entropies_are_numbers(x, alpha, k, backend):
    entropy = renyi_entropy(x, alpha=alpha, k=k, backend=backend)
    assert entropy.shape == ()
    assert entropy.dtype == torch.float64
    rho = kth_neighbor_distance(x, k, backend=backend)
    # Documented: a sample with an atom has no density.
    atoms = bool((rho == 0).any()) if alpha > 1 - 1e-6 else bool((rho == 0).all())
    assert float(entropy) == -math.inf if atoms else bool(entropy.isfinite())


@fuzz(
    slow=1000,
    rho=KTH,
    alpha=orders,
    k=counts,
    dimension=mostly(st.integers(1, 2000), anything),
)
def test_entropies_of_any_distances_are_numbers(rho, alpha, k, dimension):
    entropy = renyi_entropy_from_distances(rho, alpha=alpha, k=k, dimension=dimension)
    assert entropy.shape == ()
    assert not entropy.isnan()
    assert float(entropy) < math.inf


@fuzz(
    slow=2000,
    distances=NEAREST | KTH,
    alpha=orders,
    form=mostly(FORMS, st.sampled_from([None, "log", 1])),
    floor=mostly(st.none() | st.floats(1e-40, 1e40), anything),
    dimension=mostly(st.none() | st.floats(1e-40, 1e40), anything),
    log_center=mostly(st.none() | st.floats(-1e40, 1e40), anything),
)
def test_rewards_are_finite(distances, alpha, form, floor, dimension, log_center):
    options = {"floor": floor, "dimension": dimension, "log_center": log_center}
    rewards = renyi_reward(distances, alpha=alpha, form=form, **options)
    sound(rewards, distances, (len(distances),))
    rho = distances[:, -1] if distances.ndim == 2 else distances
    rho = rho if rho.dtype == torch.float64 else rho.float()
    assert (rewards[rho.argsort()].diff() >= 0).all()


@fuzz(slow=1500, x=points(), alpha=st.floats(0, 1, exclude_max=True), k=FEW_NEIGHBORS, form=FORMS)
def test_rewards_of_points_are_finite(x, alpha, k, form):
    distances = neighbor_distances(x, k)
    sound(renyi_reward(distances, alpha=alpha, form=form), x, (len(x),))


@fuzz(slow=500, distances=NEAREST)
def test_intrinsic_dimensions_are_positive(distances):
    found = intrinsic_dimension(distances)
    sound(found, distances, ())
    assert found > 0


@fuzz(
    slow=700,
    x=points(40),
    alpha=orders,
    k_max=mostly(st.integers(1, 5), anything),
    k_min=mostly(st.integers(1, 2), anything),
    num_subsets=mostly(st.integers(2, 4), anything),
    seed=mostly(st.integers(0, 5), anything),
)
def test_a_found_k_is_one_that_was_searched(x, alpha, k_max, k_min, num_subsets, seed):
    options = {"k_max": k_max, "k_min": k_min, "num_subsets": num_subsets, "seed": seed}
    found = search_k(x, alpha=alpha, **options)
    assert len(found.ratios) == k_max
    assert all(ratio >= 1 for ratio in found.ratios)
    assert found.k is None or k_min <= found.k <= k_max
    assert (found.k is None) == all(math.isinf(ratio) for ratio in found.ratios[k_min - 1 :])
