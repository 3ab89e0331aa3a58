"""Which search runs where, and what is said when it cannot."""

import sys

import pytest
from neighbor_reference import assert_exact, gaussian, reference

from rllib_rise.entropy import backends as backends_module
from rllib_rise.entropy import (
    installed_faiss,
    neighbor_distances,
    resolve_backend,
)
from rllib_rise.errors import ConfigError, MissingExtraError


@pytest.fixture
def fresh_install_check():
    installed_faiss.cache_clear()
    yield
    installed_faiss.cache_clear()


def test_auto_takes_what_is_fastest_on_the_cpu_and_torch_elsewhere():
    assert resolve_backend("auto", "cpu") == "torch+faiss"
    for num_points, dimension in ((1024, 128), (131072, 28), (4096, 128), (1024, 512)):
        chosen = resolve_backend("auto", "cpu", num_points=num_points, dimension=dimension)
        assert chosen == "torch+faiss"
    for num_points, dimension in ((8192, 128), (4096, 256), (131072, 128)):
        chosen = resolve_backend("auto", "cpu", num_points=num_points, dimension=dimension)
        assert chosen == "faiss"
    assert resolve_backend("auto", "mps") == "torch"
    assert resolve_backend("torch", "cuda:0") == "torch"
    with pytest.raises(ConfigError, match="annoy"):
        resolve_backend("annoy", "cpu")


def test_without_faiss_auto_falls_back_to_torch(monkeypatch, fresh_install_check):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert installed_faiss().importable is False
    assert resolve_backend("auto", "cpu") == "torch"
    x = gaussian(50, 3)
    assert_exact(neighbor_distances(x, 2), reference(x, 2))
    for backend in ("faiss", "torch+faiss"):
        with pytest.raises(MissingExtraError, match=r"pip install faiss-cpu"):
            neighbor_distances(x, 2, backend=backend)


def test_faiss_gpu_is_refused_where_it_would_abort_the_process(monkeypatch):
    cpu_only = backends_module.FaissInstall({"faiss-cpu": "1.15"}, True, 0, None)
    monkeypatch.setattr(backends_module, "installed_faiss", lambda: cpu_only)
    assert resolve_backend("auto", "cuda:0") == "torch"
    with pytest.raises(MissingExtraError, match=r"pip install faiss-gpu"):
        resolve_backend("faiss-gpu", "cuda:0")


def test_faiss_gpu_is_taken_for_cuda_points_only(monkeypatch):
    with_gpu = backends_module.FaissInstall({"faiss-gpu": "1.15"}, True, 1, None)
    monkeypatch.setattr(backends_module, "installed_faiss", lambda: with_gpu)
    assert resolve_backend("auto", "cuda:0") == "faiss-gpu"
    assert resolve_backend("auto", "cpu") == "torch+faiss"
    with pytest.raises(ConfigError, match="kind cuda"):
        resolve_backend("faiss-gpu", "cpu")


def test_two_faiss_wheels_are_refused_with_the_way_out(monkeypatch, fresh_install_check):
    monkeypatch.setattr(
        backends_module.importlib.metadata,
        "version",
        lambda name: "1.15" if name in ("faiss-cpu", "faiss-gpu") else _missing(name),
    )
    assert set(installed_faiss().wheels) == {"faiss-cpu", "faiss-gpu"}
    for backend in ("auto", "faiss", "torch+faiss", "faiss-gpu"):
        with pytest.raises(MissingExtraError, match="pip uninstall -y faiss-cpu faiss-gpu"):
            resolve_backend(backend, "cpu")
    assert resolve_backend("torch", "cpu") == "torch"


def _missing(name: str) -> str:
    raise backends_module.importlib.metadata.PackageNotFoundError(name)
