"""Which search runs: what is installed, what the device is, and which is the fastest there."""

import functools
import importlib
import importlib.metadata
import logging
from dataclasses import dataclass

import torch

from rllib_rise.entropy.faiss_gpu import gpu_problem
from rllib_rise.errors import ConfigError, MissingExtraError

logger = logging.getLogger(__name__)

BACKENDS = ("auto", "torch", "torch+faiss", "faiss", "faiss-gpu")

# Where FAISS's own search is taken to be the faster one; `resolve_backend` says why.
FAISS_GPU_FROM_POINTS = 2**15

_FAISS_WHEELS = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12")
_INSTALL_CPU = "pip install faiss-cpu"
_INSTALL_GPU = "pip install faiss-gpu"


@dataclass(frozen=True)
class FaissInstall:
    """What is known of the FAISS installation.

    Attributes:
        wheels: Installed distributions and their versions, for example
            `{"faiss-cpu": "1.15.0"}`. Empty if FAISS did not come from a wheel.
        importable: Whether `import faiss` works.
        gpus: How many GPUs FAISS can use; 0 for the CPU wheel.
        problem: Why FAISS must not be used, or None.
    """

    wheels: dict[str, str]
    importable: bool
    gpus: int
    problem: str | None


@functools.cache
def installed_faiss() -> FaissInstall:
    """Looks at the FAISS installation once per process, without raising.

    Returns:
        The wheels found, whether FAISS imports, and what is wrong with it if anything is.
    """
    wheels: dict[str, str] = {}
    for name in _FAISS_WHEELS:
        try:
            wheels[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if len(wheels) > 1:
        names = " ".join(wheels)
        problem = (
            f"several FAISS wheels are installed ({names}) and overwrite each other's files; run "
            f"`pip uninstall -y {names}` and then one of `{_INSTALL_CPU}` and `{_INSTALL_GPU}`"
        )
        return FaissInstall(wheels, importable=False, gpus=0, problem=problem)
    try:
        faiss = importlib.import_module("faiss")
    except ImportError as error:
        return FaissInstall(
            wheels,
            importable=False,
            gpus=0,
            problem=f"`import faiss` failed ({error}); run `{_INSTALL_CPU}` or `{_INSTALL_GPU}`",
        )
    # The CPU wheel has no StandardGpuResources, and knn_gpu without a usable GPU aborts the
    # process instead of raising, so both are asked before it is ever called.
    gpus = int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0
    return FaissInstall(wheels, importable=True, gpus=gpus, problem=None)


def resolve_backend(backend: str, device: torch.device | str, *, num_points: int = 0) -> str:
    """Chooses the search that will run for points on `device`.

    - `torch`: blocks of torch's matrix products (of differences, up to 3 dimensions) propose
      neighbours, and torch computes their distances. The only one that needs no FAISS.
    - `torch+faiss`: likewise, but FAISS computes the distances, which is faster; on the CPU.
    - `faiss`: FAISS proposes them too; on the CPU.
    - `faiss-gpu`: FAISS on the GPU that holds the points proposes, torch computes the distances.

    `auto` means on the CPU `torch` without FAISS, else `torch+faiss`, and never `faiss`: its matrix
    products are those of an OpenBLAS of 2021 within the wheel, which takes processors that it does
    not know for ones without AVX. On such a one (Intel Ice Lake) `faiss` takes 2.8 to 5.2 times as
    long for N from 1,024 to 4,096 and m from 128 to 1,024. At best it gains little: on an AMD EPYC
    with AVX-512 it takes .88 to 1.07 times as long for at least 128 dimensions and 2^20 numbers,
    below that 1.06 to 4.4 times. (Measured once, one thread, torch 2.13,
    faiss-cpu 1.15.1; `rise bench --full --only backends` measures yours.)

    For CUDA points `auto` means `torch` up to 2^15 points, `faiss-gpu` from there on if a child
    process finds that it works (`gpu_problem`), else `torch` with a warning. We have not measured
    that limit; others found torch 6.5 times as fast for 5,000 queries among 8,192 points of 2,048
    dimensions (faiss issue 3045). `rise bench --full --gpu` measures both.

    Args:
        backend: One of `BACKENDS`.
        device: Where the points are.
        num_points: N, or the size of the largest group.

    Returns:
        One of `BACKENDS`, but not `"auto"`.

    Raises:
        ConfigError: `backend` is unknown, or cannot search on this device.
        MissingExtraError: FAISS is needed but missing, installed twice, or does not work.
    """
    if backend not in BACKENDS:
        raise ConfigError(f"backend={backend!r} is unknown; use one of {', '.join(BACKENDS)}")
    device = torch.device(device)
    # Points on Apple's GPUs are searched on the CPU, for want of float64.
    kind = "cpu" if device.type == "mps" else device.type
    if backend == "torch" or (backend == "auto" and kind not in ("cpu", "cuda")):
        return "torch"
    install = installed_faiss()
    if len(install.wheels) > 1:
        raise MissingExtraError(f"backend={backend!r}: {install.problem}")
    if backend == "auto" and kind == "cuda":
        return _fastest_on_gpu(num_points, install, device)
    if backend == "auto":
        return "torch+faiss" if install.importable else "torch"
    if not install.importable:
        raise MissingExtraError(f"backend={backend!r}: {install.problem}; or use backend='torch'")
    if backend == "faiss-gpu" and install.gpus == 0:
        raise MissingExtraError(
            "backend='faiss-gpu' needs FAISS with GPU support and a visible GPU, and found "
            f"{install.wheels or 'no FAISS wheel'} with 0 usable GPUs; uninstall faiss-cpu and run "
            f"`{_INSTALL_GPU}` on a machine with a GPU, or use backend='auto'"
        )
    needed = "cuda" if backend == "faiss-gpu" else "cpu"
    if kind != needed:
        raise ConfigError(
            f"backend={backend!r} needs points on a device of the kind {needed}, these are on "
            f"{device}; move them there or use backend='auto'"
        )
    if backend == "faiss-gpu" and (problem := gpu_problem(device.index or 0)) is not None:
        raise MissingExtraError(
            f"backend='faiss-gpu' does not work on {device}: {problem}; use backend='auto' or "
            "'torch', or another FAISS (`rise doctor` tries it again)"
        )
    return backend


def _fastest_on_gpu(num_points: int, install: FaissInstall, device: torch.device) -> str:
    if install.gpus == 0 or num_points < FAISS_GPU_FROM_POINTS:
        return "torch"
    problem = gpu_problem(device.index or 0)
    if problem is None:
        return "faiss-gpu"
    _warn_once(f"FAISS cannot be used on {device}, torch searches neighbours there: {problem}")
    return "torch"


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)
