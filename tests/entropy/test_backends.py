"""Which search runs where, and what is said when it cannot."""

import sys

import pytest
from neighbor_reference import assert_exact, gaussian, reference

from rllib_rise.entropy import (
    BACKENDS,
    FaissInstall,
    installed_faiss,
    neighbor_distances,
    resolve_backend,
)
from rllib_rise.entropy import backends as backends_module
from rllib_rise.entropy.faiss_gpu import probe
from rllib_rise.errors import ConfigError, MissingExtraError


@pytest.fixture
def fresh_install_check():
    installed_faiss.cache_clear()
    yield
    installed_faiss.cache_clear()


def test_auto_takes_what_is_fastest_on_the_cpu():
    assert resolve_backend("auto", "cpu") == "torch+faiss"
    assert resolve_backend("auto", "cpu", num_points=131072) == "torch+faiss"
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


NO_FAISS = FaissInstall({}, False, 0, "run `pip install faiss-cpu` or `pip install faiss-gpu`")
CPU_WHEEL = FaissInstall({"faiss-cpu": "1.15"}, True, 0, None)
GPU_WHEEL = FaissInstall({"faiss-gpu": "1.15"}, True, 1, None)
GPU_WHEEL_ALONE = FaissInstall({"faiss-gpu": "1.15"}, True, 0, None)
TWO_WHEELS = FaissInstall({"faiss-cpu": "1", "faiss-gpu": "1"}, False, 0, "pip uninstall -y both")
WORKS, ABORTS = "pass", "import os; os.abort()"
MISSING, WRONG = MissingExtraError, ConfigError

TABLE = [
    # device, install, what a child that tries the GPU does, {backend: choice or error}
    ("cpu", NO_FAISS, ABORTS, ["torch", "torch", MISSING, MISSING, MISSING]),
    ("cpu", CPU_WHEEL, ABORTS, ["torch+faiss", "torch", "torch+faiss", "faiss", MISSING]),
    ("cpu", GPU_WHEEL, ABORTS, ["torch+faiss", "torch", "torch+faiss", "faiss", WRONG]),
    ("cpu", GPU_WHEEL, WORKS, ["torch+faiss", "torch", "torch+faiss", "faiss", WRONG]),
    (
        "cpu",
        GPU_WHEEL_ALONE,
        ABORTS,
        ["torch+faiss", "torch", "torch+faiss", "faiss", MISSING],
    ),
    ("cpu", TWO_WHEELS, ABORTS, [MISSING, "torch", MISSING, MISSING, MISSING]),
    ("cuda:0", NO_FAISS, ABORTS, ["torch", "torch", MISSING, MISSING, MISSING]),
    ("cuda:0", CPU_WHEEL, ABORTS, ["torch", "torch", WRONG, WRONG, MISSING]),
    ("cuda:0", GPU_WHEEL, ABORTS, ["torch", "torch", WRONG, WRONG, MISSING]),
    ("cuda:0", GPU_WHEEL, WORKS, ["faiss-gpu", "torch", WRONG, WRONG, "faiss-gpu"]),
    ("cuda:1", GPU_WHEEL, WORKS, ["faiss-gpu", "torch", WRONG, WRONG, "faiss-gpu"]),
    ("cuda:0", GPU_WHEEL_ALONE, ABORTS, ["torch", "torch", WRONG, WRONG, MISSING]),
    ("cuda:0", TWO_WHEELS, ABORTS, [MISSING, "torch", MISSING, MISSING, MISSING]),
    ("mps", CPU_WHEEL, ABORTS, ["torch+faiss", "torch", "torch+faiss", "faiss", MISSING]),
    ("xpu", GPU_WHEEL, WORKS, ["torch", "torch", WRONG, WRONG, WRONG]),
]


@pytest.fixture
def machine(monkeypatch):
    """A machine with a FAISS of some kind; the child processes that try its GPU are real."""
    backends_module._warn_once.cache_clear()

    def install(found: FaissInstall, code: str) -> None:
        monkeypatch.setattr(backends_module, "installed_faiss", lambda: found)
        monkeypatch.setattr(backends_module, "gpu_problem", lambda device: probe(code))

    return install


@pytest.mark.parametrize(("device", "install", "child", "expected"), TABLE)
def test_the_choice_on_every_machine(machine, device, install, child, expected):
    machine(install, child)
    for backend, choice in zip(BACKENDS, expected, strict=True):
        if isinstance(choice, str):
            assert resolve_backend(backend, device, num_points=2**15) == choice
        else:
            with pytest.raises(choice, match=r"pip |kind c|SIGABRT"):
                resolve_backend(backend, device, num_points=2**15)


def test_few_points_on_a_gpu_are_searched_by_torch_and_faiss_is_not_tried(machine, monkeypatch):
    machine(GPU_WHEEL, WORKS)
    monkeypatch.setattr(backends_module, "gpu_problem", lambda device: pytest.fail("was tried"))
    assert resolve_backend("auto", "cuda:0", num_points=2**15 - 1) == "torch"
    assert resolve_backend("auto", "cuda:0") == "torch"


def test_auto_says_once_why_faiss_is_not_used_on_the_gpu(machine, caplog):
    machine(GPU_WHEEL, ABORTS)
    for _ in range(3):
        assert resolve_backend("auto", "cuda:0", num_points=2**16) == "torch"
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "torch searches neighbours there" in record.getMessage()
    assert "SIGABRT" in record.getMessage()
    with pytest.raises(MissingExtraError, match="SIGABRT"):
        resolve_backend("faiss-gpu", "cuda:0")


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
