"""Which search runs: what is installed, what the device is, and which is the fastest there."""

import functools
import importlib
import importlib.metadata
from dataclasses import dataclass

import torch

from rllib_rise.errors import ConfigError, MissingExtraError

BACKENDS = ("auto", "torch", "torch+faiss", "faiss", "faiss-gpu")

FAISS_FROM_DIMENSION = 128
FAISS_FROM_ELEMENTS = 2**20
"""From here on, in N x m, FAISS's own search is the fastest on the CPU (see `resolve_backend`)."""

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


def resolve_backend(
    backend: str, device: torch.device | str, *, num_points: int = 0, dimension: int = 0
) -> str:
    """Chooses the search that will run for points on `device`.

    - `torch`: blocks of torch's matrix products (of differences, up to 3 dimensions) propose
      neighbours, and torch computes their distances. The only one that needs no FAISS.
    - `torch+faiss`: likewise, but FAISS computes the distances, which is faster; on the CPU.
    - `faiss`: FAISS proposes them too; on the CPU.
    - `faiss-gpu`: FAISS on the GPU that holds the points proposes, torch computes the distances.

    `auto` means on the CPU `torch` without FAISS, else `torch+faiss`, and `faiss` for sets of at
    least 128 dimensions and 2^20 numbers. That is where the times meet: `faiss` takes 1.1 to 4.5
    times as long below, and .84 to 1.0 times above (`python -m rllib_rise.entropy.timing`, one
    thread of an AMD EPYC with AVX-512, torch 2.13, faiss-cpu 1.15.1, N up to 32,768 and m up to
    512). For CUDA points it is `faiss-gpu` if that can be used, else `torch`.

    Args:
        backend: One of `BACKENDS`.
        device: Where the points are.
        num_points: N, or the size of the largest group.
        dimension: m.

    Returns:
        One of `BACKENDS`, but not `"auto"`.

    Raises:
        ConfigError: `backend` is unknown, or cannot search on this device.
        MissingExtraError: FAISS is needed but missing, or installed twice.
    """
    if backend not in BACKENDS:
        raise ConfigError(f"backend={backend!r} is unknown; use one of {', '.join(BACKENDS)}")
    kind = torch.device(device).type
    if backend == "torch" or (backend == "auto" and kind not in ("cpu", "cuda")):
        return "torch"
    install = installed_faiss()
    if len(install.wheels) > 1:
        raise MissingExtraError(f"backend={backend!r}: {install.problem}")
    if backend == "auto" and kind == "cuda":
        return "faiss-gpu" if install.gpus > 0 else "torch"
    if backend == "auto":
        return _fastest_on_cpu(num_points, dimension) if install.importable else "torch"
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
    return backend


def _fastest_on_cpu(num_points: int, dimension: int) -> str:
    if dimension >= FAISS_FROM_DIMENSION and num_points * dimension >= FAISS_FROM_ELEMENTS:
        return "faiss"
    return "torch+faiss"
