"""scikit-learn's neighbours, and data on which fast searches go wrong.

The k-d tree computes distances from coordinate differences; scikit-learn's brute force uses the
matrix-product trick itself and would be no reference for the adversarial data below.
"""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

BACKENDS = ("faiss", "torch", "torch+faiss")
RTOL = {torch.float32: 1e-6, torch.float64: 2e-12}

all_backends = pytest.mark.parametrize("backend", BACKENDS)


def reference(x: torch.Tensor, k: int) -> np.ndarray:
    """k-NN distances [N, k] with the documented clipping, by scikit-learn."""
    points = x.double().numpy()
    reach = min(k, len(points) - 1)
    if reach < 1:
        return np.zeros((len(points), k))
    tree = NearestNeighbors(n_neighbors=reach, algorithm="kd_tree").fit(points)
    distances = tree.kneighbors()[0]
    return np.pad(distances, ((0, 0), (0, k - reach)), mode="edge")


def grouped_reference(x: torch.Tensor, k: int, groups: torch.Tensor) -> np.ndarray:
    result = np.empty((len(x), k))
    for label in groups.unique():
        rows = (groups == label).numpy()
        result[rows] = reference(x[torch.from_numpy(rows)], k)
    return result


def assert_exact(found: torch.Tensor, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy() == 0, expected == 0)
    # Subnormal results have fewer digits: one unit in the last place is all that can be asked.
    smallest = torch.finfo(found.dtype).smallest_normal * torch.finfo(found.dtype).eps
    np.testing.assert_allclose(
        found.double().numpy(), expected, rtol=RTOL[found.dtype], atol=smallest
    )


def gaussian(n: int, m: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, m, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def cluster_with_outlier(n: int, m: int, spread: float, outlier: float) -> torch.Tensor:
    x = gaussian(n, m) * spread
    x[-1] = outlier
    return x


def with_duplicates(n: int, m: int) -> torch.Tensor:
    x = gaussian(n, m)
    x[: n // 3] = x[0]
    x[n // 3 : n // 2] = x[n // 3]
    x[n // 2 : n // 2 + 4] = x[n // 2]
    return x + 7.3


def integer_grid(side: int, m: int) -> torch.Tensor:
    axes = [torch.arange(side, dtype=torch.float32)] * m
    return torch.cartesian_prod(*axes).reshape(-1, m)


def recurring_states(n: int, distinct: int, m: int) -> torch.Tensor:
    picks = torch.randint(distinct, (n,), generator=torch.Generator().manual_seed(1))
    return gaussian(distinct, m)[picks]


ADVERSARIAL = {
    "plain": lambda: gaussian(300, 16),
    "one dimension": lambda: gaussian(400, 1),
    "512 dimensions": lambda: gaussian(200, 512),
    "offset 1e2": lambda: gaussian(300, 128) + 1e2,
    "offset 1e4": lambda: gaussian(300, 32) + 1e4,
    "offset 1e6": lambda: gaussian(300, 8) + 1e6,
    "one column far off": lambda: gaussian(300, 8) + torch.tensor([1e5] + [0.0] * 7),
    "outlier": lambda: cluster_with_outlier(400, 16, 1e-3, 1e4),
    "extreme outlier": lambda: cluster_with_outlier(300, 4, 1e-12, 1e8),
    "cluster below float64 cancellation": lambda: cluster_with_outlier(300, 4, 1e-20, 1.0),
    "two far clusters": lambda: torch.cat((gaussian(150, 64) - 1e3, gaussian(150, 64, 1) + 1e3)),
    "duplicates": lambda: with_duplicates(300, 24),
    "all equal": lambda: torch.full((40, 3), 0.1),
    "all equal and huge": lambda: torch.full((40, 3), 3e38),
    "grid in 1-d": lambda: integer_grid(200, 1),
    "grid in 2-d": lambda: integer_grid(18, 2) + 1e4,
    "grid in 3-d": lambda: integer_grid(7, 3),
    "recurring states": lambda: recurring_states(400, 40, 32),
    "magnitude 1e30": lambda: gaussian(200, 8) * 1e30,
    "magnitude 1e38": lambda: gaussian(200, 8) * 1e37,
    "magnitude 1e-30": lambda: gaussian(200, 8) * 1e-30,
    "subnormal": lambda: gaussian(200, 8) * 1e-42,
    "magnitudes 1e-20 to 1e30": lambda: gaussian(200, 3) * torch.logspace(-20, 30, 200)[:, None],
}
