"""FAISS's candidates and distances, and torch's candidates, which have the same form."""

import pytest
import torch
from neighbor_reference import assert_exact, gaussian, reference

from rllib_rise.entropy.candidates import product_error, torch_candidates
from rllib_rise.entropy.faiss_search import faiss_candidates, faiss_distances


@pytest.mark.parametrize("search", [faiss_candidates, torch_candidates])
@pytest.mark.parametrize("m", [1, 3, 32, 128, 512])
@pytest.mark.parametrize("kind", ["gaussian", "positive", "outlier"])
def test_what_is_missed_is_not_below_the_bound(kind, m, search):
    x = gaussian(400, m).abs() if kind == "positive" else gaussian(400, m)
    if kind == "outlier":
        x[0] *= 1e3
    index, bound = search(x, 20)
    exact = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist") ** 2
    error, norms = product_error(m, torch.float32), x.double().square().sum(1)
    allowed = error.of_square * exact + error.of_norm * norms[:, None] + error.absolute
    fetched = torch.zeros(400, 400, dtype=torch.bool).scatter_(1, index, True)
    assert bool((fetched.sum(1) == 20).all())
    assert bool((fetched | (exact + allowed >= bound.double()[:, None])).all())
    # It is not so low that it would certify nothing: what was fetched reaches up to it.
    reached = exact.masked_fill(~fetched, 0).amax(1)
    assert bool((bound.double() - reached <= allowed.amax(1)).all())


def test_distances_of_candidates_are_exact_and_minus_one_is_none():
    x = gaussian(50, 6)
    others = torch.arange(50).repeat(50, 1).fill_diagonal_(-1)
    assert_exact(faiss_distances(x, others).sort(dim=1).values[:, :7], reference(x, 7))
    others[:, 10:] = -1
    few = faiss_distances(x, others)
    assert few.isfinite().sum(dim=1).tolist() == [9] * 10 + [10] * 40


def test_squares_that_would_underflow_are_left_to_another():
    others = torch.tensor([[1], [0]])
    assert faiss_distances(torch.tensor([[1e-30], [2e-30]]), others) is None
    assert faiss_distances(torch.tensor([[1e-30], [1.0]]), others).tolist() == [[1.0], [1.0]]
    duplicates = torch.tensor([[0.5, 0.0], [0.5, 0.0]])
    assert faiss_distances(duplicates, others).tolist() == [[0.0], [0.0]]
