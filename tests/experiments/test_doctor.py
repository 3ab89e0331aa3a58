import importlib.abc
import importlib.metadata
import shutil
import sys
from collections import namedtuple

import pytest

from rllib_rise.entropy import backends
from rllib_rise.entropy.backends import installed_faiss
from rllib_rise.entropy.faiss_gpu import probe
from rllib_rise.experiments import doctor
from rllib_rise.experiments.doctor import Check, examine


@pytest.fixture
def fresh_faiss():
    installed_faiss.cache_clear()
    yield
    installed_faiss.cache_clear()


class _Hidden(importlib.abc.MetaPathFinder):
    """An import system in which some packages are not installed."""

    def __init__(self, *names):
        self.names = names

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _hide_faiss(monkeypatch):
    versions = importlib.metadata.version

    def version(name):
        if name.startswith("faiss"):
            raise importlib.metadata.PackageNotFoundError(name)
        return versions(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    for name in [name for name in sys.modules if name.partition(".")[0] == "faiss"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Hidden("faiss"), *sys.meta_path])


def _by_name():
    return {check.name: check for check in examine()}


def test_names_are_unique_and_details_are_single_lines():
    checks = examine()
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.detail and "\n" not in check.detail for check in checks)
    # The command line gives names 12 columns.
    assert all(len(check.name) <= 12 for check in checks)


def test_what_the_tests_themselves_need_is_ok():
    checks = _by_name()
    for name in ("python", "machine", "ray", "torch", "gymnasium", "maze"):
        assert checks[name].state == "ok", checks[name]
    assert checks["ray"].detail == importlib.metadata.version("ray")
    assert "cores" in checks["machine"].detail


def test_a_gpu_is_optional():
    import torch

    expected = "ok" if torch.cuda.is_available() else "missing"
    assert _by_name()["cuda"].state == expected


def test_knn_names_the_backend_that_auto_takes(fresh_faiss):
    pytest.importorskip("faiss")
    check = _by_name()["k-NN"]
    assert check.state == "ok"
    assert "auto takes torch+faiss" in check.detail


def test_on_a_machine_with_a_gpu_knn_says_what_the_probe_says(monkeypatch, fresh_faiss):
    faiss = pytest.importorskip("faiss")
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(faiss, "StandardGpuResources", None, raising=False)
    for gpus, code, state, words in (
        (0, "pass", "ok", "on the GPU torch, for FAISS sees none: pip install faiss-gpu"),
        (1, "pass", "ok", "on the GPU torch, and faiss-gpu from 32,768 points"),
        (1, "import os; os.abort()", "missing", "FAISS does not work there: a child process that"),
    ):
        installed_faiss.cache_clear()
        monkeypatch.setattr(faiss, "get_num_gpus", lambda gpus=gpus: gpus)
        monkeypatch.setattr(backends, "gpu_problem", lambda code=code: probe(code))
        check = Check("k-NN", *doctor._knn())
        assert check.state == state
        assert words in check.detail
        assert "\n" not in check.detail


def test_without_faiss_torch_is_taken_and_the_command_is_given(monkeypatch, fresh_faiss):
    _hide_faiss(monkeypatch)
    check = _by_name()["k-NN"]
    assert check.state == "missing"
    assert "auto takes torch" in check.detail
    assert "pip install faiss-cpu" in check.detail


def test_two_faiss_wheels_are_bad(monkeypatch, fresh_faiss):
    versions = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata,
        "version",
        lambda name: "1.15.0" if name in ("faiss-cpu", "faiss-gpu") else versions(name),
    )
    check = _by_name()["k-NN"]
    assert check.state == "bad"
    assert "pip uninstall -y faiss-cpu faiss-gpu" in check.detail


@pytest.mark.parametrize(
    ("extra", "module"),
    [("atari", "ale_py"), ("bullet", "pybullet"), ("minigrid", "minigrid"), ("tune", "optuna")],
)
def test_a_missing_extra_comes_with_its_command(monkeypatch, extra, module):
    found = doctor.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == module else found(name))
    check = _by_name()[extra]
    assert check.state == "missing"
    assert module in check.detail
    assert f"-e '.[{extra}]'" in check.detail


def test_extras_are_not_imported():
    import subprocess

    code = (
        "import sys; from rllib_rise.experiments.doctor import _extra, _EXTRAS\n"
        "for extra in _EXTRAS: _extra(extra)\n"
        "print([m for m in ('ale_py', 'cv2', 'pybullet', 'optuna', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("found", "state"), [("2.59.1", "bad"), ("2.60.3", "ok"), (None, "bad")])
def test_only_the_ray_series_of_the_package_is_ok(monkeypatch, found, state):
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: found if name == "ray" else real(name))
    check = _by_name()["ray"]
    assert check.state == state
    assert state == "ok" or "pip install 'ray[rllib" in check.detail


@pytest.mark.parametrize(
    ("version", "state"), [("3.10.4", "bad"), ("3.11.9", "ok"), ("3.13.0", "ok")]
)
def test_python_versions(monkeypatch, version, state):
    monkeypatch.setattr(doctor.platform, "python_version", lambda: version)
    monkeypatch.setattr(doctor.platform, "python_version_tuple", lambda: version.split("."))
    check = Check("python", *doctor._python())
    assert check.state == state
    assert version in check.detail


def test_a_full_disk_is_bad(monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**10, 10**10 - 10**8, 10**8))
    check = _by_name()["disk"]
    assert check.state == "bad"
    assert "0.1 GB" in check.detail


def test_a_check_that_fails_is_a_finding(monkeypatch):
    def broken(path):
        raise OSError("no such device\nand more")

    monkeypatch.setattr(shutil, "disk_usage", broken)
    assert _by_name()["disk"] == Check(
        "disk", "bad", "the check failed with OSError: no such device"
    )
