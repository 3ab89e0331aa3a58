"""FAISS on a GPU: the probe in a child process, what we ask of FAISS, and the search itself."""

import os
import subprocess
import sys

import pytest
import torch
from faiss_stand_in import write_stand_in
from neighbor_reference import assert_exact, gaussian, grouped_reference, reference

from rllib_rise.entropy import installed_faiss, neighbor_distances
from rllib_rise.entropy.faiss_gpu import PROBE, gpu_problem, probe

on_cpu = PROBE.format(device="cpu", index=-1)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_faiss_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or installed_faiss().gpus == 0,
    reason="needs a CUDA device and FAISS with GPU support",
)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Lets children import the stand-in; a call with what its search does first."""

    def install(first: str = "pass") -> None:
        paths = [write_stand_in(tmp_path, first), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))

    return install


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('fine')", None),
        ("raise SystemExit(0)", None),
        ("raise SystemExit(3)", "exit code 3: no message"),
        ("import sys; print('first\\nlast\\n', file=sys.stderr); sys.exit(1)", "exit code 1: last"),
        ("raise ValueError('no such device')", "exit code 1: ValueError: no such device"),
        ("import os; os.abort()", "signal SIGABRT: no message"),
        ("import os; os.write(2, b'bad \\xff byte\\n'); os.abort()", "signal SIGABRT: bad"),
    ],
)
def test_the_probe_tells_how_a_child_ended(code, reason):
    found = probe(code)
    assert (found is None) == (reason is None)
    assert reason is None or reason in found
    assert found is None or "\n" not in found


def test_a_child_that_hangs_is_given_up():
    assert probe("import time; time.sleep(60)", timeout=0.5) == (
        "a child process that tried it did not end within 0.5 s"
    )


def test_the_probe_succeeds_where_the_search_works(stand_in):
    stand_in()
    assert probe(on_cpu) is None


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("os.abort()", "SIGABRT"),
        ("xb = xb.flip(0)", "wrong neighbours"),
        ("raise RuntimeError('CUDA error: no kernel image')", "CUDA error: no kernel image"),
    ],
)
def test_the_probe_fails_where_the_search_does_not_work(stand_in, first, reason):
    stand_in(first)
    assert reason in probe(on_cpu)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a CUDA device")
def test_without_a_gpu_the_real_probe_fails_and_is_not_repeated():
    gpu_problem.cache_clear()
    try:
        problem = gpu_problem()
        assert "a child process that tried it ended with" in problem
        assert gpu_problem() is problem
        assert gpu_problem.cache_info().misses == 1
    finally:
        gpu_problem.cache_clear()


CONTRACT = """
import faiss, torch
from rllib_rise.entropy import faiss_gpu
from rllib_rise.entropy.candidates import torch_candidates

faiss_gpu._QUERIES = 100
points = torch.randn(250, 8, generator=torch.Generator().manual_seed(0))
for _ in range(2):
    index, bound = faiss_gpu.gpu_candidates(points, 7)
    expected, limit = torch_candidates(points, 7)
    assert torch.equal(index, expected)
    torch.testing.assert_close(bound, limit, rtol=1e-4, atol=1e-4)
start, row = points.data_ptr(), 8 * 4
assert faiss.calls == 2 * [
    (start, start, 100, -1),
    (start + 100 * row, start, 100, -1),
    (start + 200 * row, start, 50, -1),
], faiss.calls
assert faiss.temp_memory == [2**28]  # once, not for every call

faiss.calls.clear()
faiss_gpu._MAX_WIDTH = 20
assert faiss_gpu.gpu_candidates(points, 21)[0].shape == (250, 21)
assert faiss.calls == []
"""


def test_tensors_go_in_without_copies_in_chunks_with_bounded_memory(stand_in):
    stand_in()
    done = subprocess.run([sys.executable, "-c", CONTRACT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def cuda_backends():
    return ["torch", "faiss-gpu"] if installed_faiss().gpus else ["torch"]


@needs_cuda
@pytest.mark.parametrize("m", [2, 16, 128])
def test_cuda_points_have_the_neighbours_of_the_cpu(m):
    x = gaussian(3000, m)
    x[100:140] = x[100]
    for backend in cuda_backends():
        found = neighbor_distances(x.cuda(), 5, backend=backend)
        assert found.device.type == "cuda"
        assert_exact(found.cpu(), reference(x, 5))


@needs_cuda
def test_cuda_points_in_groups():
    x, labels = gaussian(900, 12), torch.arange(900) % 7
    for backend in cuda_backends():
        found = neighbor_distances(x.cuda(), 4, groups=labels.cuda(), backend=backend)
        assert_exact(found.cpu(), grouped_reference(x, 4, labels))


@needs_cuda
def test_memory_on_the_gpu_is_far_below_the_distance_matrix():
    x = torch.randn(40_000, 32, device="cuda")
    neighbor_distances(x[:1000], 5, backend="torch")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    neighbor_distances(x, 5, backend="torch")
    assert torch.cuda.max_memory_allocated() - before < 40_000**2 * 4 / 4


@needs_faiss_gpu
def test_the_real_probe_succeeds_where_faiss_can_use_the_gpu():
    assert gpu_problem() is None
