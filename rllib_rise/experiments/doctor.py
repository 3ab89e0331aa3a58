"""What this machine has, and what is missing: the checks of `rise doctor`."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

State = Literal["ok", "missing", "bad"]
Finding = tuple[State, str]

_TESTED_PYTHON = (3, 11)
_RAY_SERIES = "2.60"
_INSTALL_RAY = "pip install 'ray[rllib,tune,default]>=2.60,<2.61'"
# Extra: (the modules that it brings, what it is for).
_EXTRAS = {
    "atari": (("ale_py",), "Atari games"),
    "bullet": (("pybullet", "pybullet_envs_gymnasium"), "PyBullet robots"),
    "minigrid": (("minigrid",), "MiniGrid tasks"),
    "tune": (("optuna",), "hyperparameter search"),
}
_GIGABYTE = 1e9
_MIN_FREE_DISK = 1 * _GIGABYTE
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: What was looked at.
        state: `missing` is optional and absent; `bad` has to be fixed.
        detail: One line: what was found, or what to do.
    """

    name: str
    state: State
    detail: str


def examine() -> list[Check]:
    """Look at everything; a check that fails is a finding and never an exception."""
    checks: dict[str, Callable[[], Finding]] = {
        "rllib_rise": _rllib_rise,
        "python": _python,
        "machine": _machine,
        "ray": _ray,
        "torch": _torch,
        "cuda": _cuda,
        "k-NN": _knn,
        "gymnasium": _gymnasium,
        "maze": _maze,
        **{extra: lambda extra=extra: _extra(extra) for extra in _EXTRAS},  # type: ignore[misc]
        "disk": _disk,
    }
    return [Check(name, *_guarded(check)) for name, check in checks.items()]


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        return "bad", f"the check failed with {type(error).__name__}: {reason}"


def _rllib_rise() -> Finding:
    from rllib_rise.experiments.run.run_directory import versions

    found = versions()
    commit = f", commit {found['commit']}" if found["commit"] else ""
    return "ok", f"{found['packages']['rllib_rise']}{commit}"


def _python() -> Finding:
    found = platform.python_version()
    major, minor = (int(part) for part in platform.python_version_tuple()[:2])
    if (major, minor) < _TESTED_PYTHON:
        return "bad", f"{found}; 3.11 or newer is needed"
    return "ok", found if (major, minor) == _TESTED_PYTHON else f"{found} (tested with 3.11)"


def _machine() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if _CGROUP_LIMIT.exists() and (limit := _CGROUP_LIMIT.read_text().strip()).isdigit():
        memory = min(memory, int(limit))  # a container may get less than the machine has
    return "ok", f"{cores} cores, {memory / _GIGABYTE:.1f} GB of memory"


def _ray() -> Finding:
    found = _version("ray")
    if found is None:
        return "bad", f"not installed: {_INSTALL_RAY}"
    if not found.startswith(f"{_RAY_SERIES}."):
        return "bad", f"{found}, but {_RAY_SERIES} is needed: {_INSTALL_RAY}"
    return "ok", found


def _torch() -> Finding:
    import torch

    return "ok", f"{torch.__version__}, {torch.get_num_threads()} threads"


def _cuda() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return "missing", "no GPU that torch can use; everything runs on the CPU"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return "ok", f"{', '.join(names)} (CUDA {torch.version.cuda})"


def _knn() -> Finding:
    import torch

    from rllib_rise.entropy.backends import (
        FAISS_GPU_FROM_POINTS,
        gpu_problem,
        installed_faiss,
        resolve_backend,
    )

    install = installed_faiss()
    if install.problem and install.wheels:
        return "bad", install.problem
    if not install.importable:
        return "missing", "auto takes torch; with FAISS it is faster: pip install faiss-cpu"
    wheels = ", ".join(f"{name} {number}" for name, number in install.wheels.items())
    taken = f"auto takes {resolve_backend('auto', 'cpu')} ({wheels or 'not from a wheel'})"
    if not torch.cuda.is_available():
        return "ok", taken
    if install.gpus == 0:
        return "ok", f"{taken}; on the GPU torch, for FAISS sees none: pip install faiss-gpu"
    if (problem := gpu_problem()) is not None:
        return "missing", f"{taken}; on the GPU torch, for FAISS does not work there: {problem}"
    return "ok", f"{taken}; on the GPU torch, and faiss-gpu from {FAISS_GPU_FROM_POINTS:,} points"


def _gymnasium() -> Finding:
    found = _version("gymnasium")
    return ("ok", found) if found else ("bad", "not installed: pip install 'gymnasium>=1.2'")


def _maze() -> Finding:
    import gymnasium

    from rllib_rise.envs import MAZE_ID

    with gymnasium.make(MAZE_ID, size=5) as env:
        env.reset(seed=0)
        for action in range(4):
            env.step(action)
    return "ok", f"{MAZE_ID} can be made and stepped"


def _extra(extra: str) -> Finding:
    modules, purpose = _EXTRAS[extra]
    absent = [name for name in modules if find_spec(name) is None]
    if absent:
        return "missing", f"for {purpose}, without {', '.join(absent)}: {_install(extra)}"
    return "ok", f"{', '.join(modules)} for {purpose}"


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    text = f"{free / _GIGABYTE:.1f} GB free in the current folder"
    if free < _MIN_FREE_DISK:
        return "bad", f"{text}: checkpoints may not fit, choose another place with --out"
    return "ok", text


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _install(extra: str) -> str:
    return f"in the repository: pip install -c constraints.txt -e '.[{extra}]'"
