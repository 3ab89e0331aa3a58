"""The certification, its fallbacks, and the memory they take."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from neighbor_reference import (
    ADVERSARIAL,
    all_backends,
    assert_exact,
    cluster_with_outlier,
    gaussian,
    grouped_reference,
    reference,
)
from torch.utils._python_dispatch import TorchDispatchMode

from rllib_rise.entropy import candidates as candidates_module
from rllib_rise.entropy import certified_search as search_module
from rllib_rise.entropy import cpu_search as cpu_module
from rllib_rise.entropy import (
    neighbor_distances,
)


@all_backends
def test_without_certification_the_neighbours_would_be_wrong(monkeypatch, backend):
    # FAISS turns to matrix products only for sets of about this size.
    x = cluster_with_outlier(1024, 128, 1e-3, 1e4)
    expected = reference(x, 3)
    calls = []
    product = search_module.product_candidates
    monkeypatch.setattr(
        search_module, "product_candidates", lambda *a: calls.append(len(a[0])) or product(*a)
    )
    assert_exact(neighbor_distances(x, 3, backend=backend), expected)
    assert sum(calls) > 1000
    monkeypatch.setattr(
        search_module, "_certified", lambda kth, *_: torch.ones_like(kth, dtype=torch.bool)
    )
    trusting = neighbor_distances(x, 3, backend=backend).numpy()
    assert (~np.isclose(trusting, expected, rtol=1e-3, atol=0)).any(axis=1).sum() > 500


@all_backends
def test_the_last_resort_by_differences_is_reached_and_needed(monkeypatch, backend):
    x = cluster_with_outlier(200, 128, 1e-12, 1e4)
    expected = reference(x, 3)
    calls = []
    direct = search_module.direct_candidates
    monkeypatch.setattr(
        search_module, "direct_candidates", lambda *a: calls.append(len(a[0])) or direct(*a)
    )
    assert_exact(neighbor_distances(x, 3, backend=backend), expected)
    assert sum(calls) > 100
    product = search_module.product_candidates
    monkeypatch.setattr(
        search_module,
        "direct_candidates",
        lambda queries, base, width: (
            product(queries - base.mean(0), base - base.mean(0), width).index
        ),
    )
    trusting = neighbor_distances(x, 3, backend=backend).numpy()
    assert (~np.isclose(trusting, expected, rtol=1e-3, atol=0)).any(axis=1).sum() > 100


@all_backends
@pytest.mark.parametrize("m", [3, 16, 128, 512])
def test_ordinary_data_is_certified_without_a_second_search(monkeypatch, m, backend):
    redone = []
    monkeypatch.setattr(search_module, "_search_again", lambda *a: redone.append(len(a[2])))
    neighbor_distances(gaussian(1000, m) + 3, 5, backend=backend)
    assert redone == []


@pytest.mark.parametrize("name", ["plain", "outlier", "duplicates", "grid in 2-d", "all equal"])
def test_the_search_that_cuda_points_get_is_exact_too(monkeypatch, name):
    # It runs on any device; here in the place of FAISS's, on the CPU.
    monkeypatch.setitem(search_module._SEARCHES, "faiss", search_module.torch_candidates)
    x = ADVERSARIAL[name]()
    assert_exact(neighbor_distances(x, 5, backend="faiss"), reference(x, 5))
    labels = torch.arange(len(x)).remainder(7).square()
    found = neighbor_distances(x, 5, groups=labels, backend="faiss")
    assert_exact(found, grouped_reference(x, 5, labels))


@pytest.mark.parametrize("backend", ["torch", "torch+faiss"])
@pytest.mark.parametrize("name", ["grid in 1-d", "grid in 2-d", "grid in 3-d"])
def test_ties_of_grids_are_certified_without_a_second_search(monkeypatch, name, backend):
    redone = []
    monkeypatch.setattr(search_module, "_search_again", lambda *a: redone.append(len(a[2])))
    x = ADVERSARIAL[name]().repeat(3, 1) / 15
    for k in (1, 2, 5, 12):
        assert_exact(neighbor_distances(x, k, backend=backend), reference(x, k))
    assert redone == []


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation returns."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for item in result if isinstance(result, tuple | list) else (result,):
            if isinstance(item, torch.Tensor):
                self.elements = max(self.elements, item.numel())
        return result


@pytest.mark.parametrize("stage", ["float32", "float64", "differences"])
def test_no_stage_of_the_torch_search_holds_the_distance_matrix(monkeypatch, stage):
    limit = 2**16
    monkeypatch.setattr(candidates_module, "BLOCK_ELEMENTS", limit)
    monkeypatch.setattr(candidates_module, "_BLOCK_COLUMNS", 500)
    monkeypatch.setattr(cpu_module, "BLOCK_ELEMENTS", limit)
    monkeypatch.setattr(search_module, "_REFINE_ELEMENTS", limit)
    if stage != "float32":
        refused = {"float64": (torch.float32,), "differences": (torch.float32, torch.float64)}
        monkeypatch.setattr(
            search_module,
            "_certified",
            lambda kth, found, *a: torch.full_like(
                kth, found.bound.dtype not in refused[stage], dtype=torch.bool
            ),
        )
    x = gaussian(1200, 8)
    with LargestTensor() as largest:
        found = neighbor_distances(x, 5, backend="torch")
    assert largest.elements <= limit
    assert_exact(found, reference(x, 5))


@all_backends
def test_peak_memory_is_far_below_the_distance_matrix(backend):
    script = f"""
import resource, torch
from rllib_rise.entropy import neighbor_distances
x = torch.randn(12000, 64)
neighbor_distances(x[:500], 5, backend="{backend}")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
neighbor_distances(x, 5, backend="{backend}")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    matrix_kib = 12000 * 12000 * 4 / 1024
    assert int(run.stdout) < matrix_kib / 3
