"""Candidate search: which points may be the nearest ones, found fast and only approximately.

Every search here returns, per query, at least the `width` points with the smallest *approximate*
squared distance, and a bound that the values of all others are not below. `certified_search`
recomputes the distances of the candidates exactly and decides from that bound whether a closer
point can have been missed.
"""

import functools
import importlib
import importlib.metadata
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rllib_rise.entropy.selection import padded, smallest_entries
from rllib_rise.errors import ConfigError, MissingExtraError

BACKENDS = ("auto", "faiss", "faiss-gpu", "torch")

_FAISS_WHEELS = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12")
_INSTALL_CPU = "pip install faiss-cpu"
_INSTALL_GPU = "pip install faiss-gpu"

BLOCK_ELEMENTS = 2**22
"""Entries of one block of the distance matrix; the whole matrix is never held."""

_BLOCK_COLUMNS = 2**14
_FAISS_QUERIES = 2**14
_GPU_TEMP_BYTES = 2**28
_GPU_MAX_WIDTH = 2048


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


def resolve_backend(backend: str, device: torch.device | str) -> str:
    """Chooses the search that will run for tensors on `device`.

    `auto` means: FAISS on the GPU for CUDA tensors if it can be used there, FAISS for CPU tensors
    if it is installed, torch otherwise.

    Args:
        backend: One of `BACKENDS`.
        device: Where the points are.

    Returns:
        `"faiss"`, `"faiss-gpu"` or `"torch"`.

    Raises:
        ConfigError: `backend` is unknown, or `faiss-gpu` is asked for points off the GPU.
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
    if backend == "auto":
        usable = install.gpus > 0 if kind == "cuda" else install.importable
        faiss_name = "faiss-gpu" if kind == "cuda" else "faiss"
        return faiss_name if usable else "torch"
    if not install.importable:
        raise MissingExtraError(f"backend={backend!r}: {install.problem}; or use backend='torch'")
    if backend == "faiss":
        return backend
    if install.gpus == 0:
        raise MissingExtraError(
            "backend='faiss-gpu' needs FAISS with GPU support and a visible GPU, and found "
            f"{install.wheels or 'no FAISS wheel'} with 0 usable GPUs; uninstall faiss-cpu and run "
            f"`{_INSTALL_GPU}` on a machine with a GPU, or use backend='auto'"
        )
    if kind != "cuda":
        raise ConfigError(
            f"backend='faiss-gpu' needs points on a CUDA device, these are on {device}; "
            "move them there or use backend='auto'"
        )
    return backend


def float32_candidates(points: Tensor, width: int, backend: str) -> tuple[Tensor, Tensor]:
    """Finds the `width` approximately nearest points of every point, itself among them.

    Args:
        points: Centred points [g, n, m], float32, with n > width: g sets to be searched each for
            itself.
        width: Candidates per point.
        backend: A result of `resolve_backend`.

    Returns:
        Per point [g n], what the approximate squared distance of all others is not below, and the
        candidates' indices within the set [g n, c], c >= width; -1 stands for none.
    """
    if backend == "torch" and points.device.type == "cpu" and not _reduced_matmul_precision():
        return _cpu_candidates(points, width)
    found = [_set_candidates(one, width, backend) for one in points]
    return torch.cat([bound for bound, _ in found]), torch.cat([index for _, index in found])


def _set_candidates(points: Tensor, width: int, backend: str) -> tuple[Tensor, Tensor]:
    if backend == "faiss":
        return _faiss_candidates(points, width)
    if backend == "faiss-gpu" and width <= _GPU_MAX_WIDTH:
        return _faiss_gpu_candidates(points, width)
    if _reduced_matmul_precision():
        points = points.double()
    return matmul_candidates(points, points, width)


def _cpu_candidates(points: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Matrix products in blocks; the nearest of each by loops that are faster than topk."""
    num_sets, num_points, _ = points.shape
    squares = points.square().sum(dim=2)
    columns = min(num_points, _BLOCK_COLUMNS)
    rows = max(1, min(num_points, BLOCK_ELEMENTS // columns))
    sets = max(1, BLOCK_ELEMENTS // (rows * columns)) if rows == num_points else 1
    bounds, tables = [], []
    for first, start in itertools.product(range(0, num_sets, sets), range(0, num_points, rows)):
        part, part_squares = points[first : first + sets], squares[first : first + sets]
        queries, query_squares = (
            part[:, start : start + rows],
            part_squares[:, start : start + rows],
        )
        limit = np.full(query_squares.numel(), np.inf, dtype=np.float32)
        found = []
        for left in range(0, num_points, columns):
            right = min(left + columns, num_points)
            values = torch.baddbmm(
                part_squares[:, None, left:right], queries, part[:, left:right].mT, alpha=-2.0
            )
            row, column, limit = smallest_entries(
                values.view(-1, right - left).numpy(), width, limit
            )
            found.append((row, column + left))
        bounds.append(torch.from_numpy(limit) + query_squares.reshape(-1))
        tables.append(torch.from_numpy(padded(found, limit.size)))
    most = max(table.shape[1] for table in tables)
    return torch.cat(bounds), torch.cat(
        [F.pad(table, (0, most - table.shape[1]), value=-1) for table in tables]
    )


def matmul_candidates(queries: Tensor, base: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Candidates by `|q|^2 + |x|^2 - 2 q.x` in the dtype of the arguments.

    Args:
        queries: [q, m].
        base: [n, m] with n >= width.
        width: Candidates per query.

    Returns:
        The largest approximate squared distance fetched [q] and the indices into `base`
        [q, width].
    """
    base_squares = base.square().sum(dim=1)

    def block(rows: Tensor, columns: slice) -> Tensor:
        products = torch.addmm(base_squares[columns], rows, base[columns].T, alpha=-2.0)
        return products.add_(rows.square().sum(dim=1, keepdim=True))

    return _blocked_candidates(queries, base.shape[0], width, block)


def direct_candidates(queries: Tensor, base: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Candidates by coordinate differences: slower by an order of magnitude, no cancellation.

    Arguments and results are those of `matmul_candidates`, but for distances that are not squared.
    """

    def block(rows: Tensor, columns: slice) -> Tensor:
        return torch.cdist(rows, base[columns], compute_mode="donot_use_mm_for_euclid_dist")

    return _blocked_candidates(queries, base.shape[0], width, block)


def _blocked_candidates(
    queries: Tensor, num_base: int, width: int, block: Callable[[Tensor, slice], Tensor]
) -> tuple[Tensor, Tensor]:
    columns = min(num_base, _BLOCK_COLUMNS)
    bounds, indices = [], []
    for rows in queries.split(max(1, BLOCK_ELEMENTS // columns)):
        best: Tensor | None = None
        best_index: Tensor | None = None
        for start in range(0, num_base, columns):
            values = block(rows, slice(start, min(start + columns, num_base)))
            near, index = values.topk(min(width, values.shape[1]), dim=1, largest=False)
            index += start
            if best is not None and best_index is not None:
                near = torch.cat((best, near), dim=1)
                index = torch.cat((best_index, index), dim=1)
                near, kept = near.topk(min(width, near.shape[1]), dim=1, largest=False)
                index = index.gather(1, kept)
            best, best_index = near, index
        assert best is not None
        assert best_index is not None
        bounds.append(best[:, -1].clone())
        indices.append(best_index)
    return torch.cat(bounds), torch.cat(indices)


def _reduced_matmul_precision() -> bool:
    # TF32 or bfloat16 products would void the error bound of the certification. Their switches are
    # global to the process, so they are read and not touched. Torch raises where its old and its
    # new switches were mixed; reduced precision is the safe answer then.
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:
        return True


def _faiss_candidates(points: Tensor, width: int) -> tuple[Tensor, Tensor]:
    faiss: Any = importlib.import_module("faiss")
    base = points.cpu().contiguous().numpy()
    bounds, indices = [], []
    for start in range(0, base.shape[0], _FAISS_QUERIES):
        squares, index = faiss.knn(base[start : start + _FAISS_QUERIES], base, width)
        bounds.append(torch.from_numpy(squares[:, -1].copy()))
        indices.append(torch.from_numpy(index))
    return torch.cat(bounds).to(points.device), torch.cat(indices).to(points.device)


def indexed_distances(points: Tensor, rows: Tensor, others: Tensor) -> Tensor:
    """Distances of the float32 points `rows` [q] to the points `others` [q, c], by differences."""
    faiss: Any = importlib.import_module("faiss")
    values, width = points.contiguous().numpy(), others.shape[1]
    left = rows.repeat_interleave(width).numpy()
    right = others.contiguous().numpy()
    squares = np.empty(right.shape, dtype=np.float32)
    faiss.pairwise_indexed_L2sqr(
        values.shape[1],
        right.size,
        *(faiss.swig_ptr(array) for array in (values, left, values, right, squares)),
    )
    return torch.from_numpy(squares).sqrt_()


@functools.cache
def _gpu_resources(device_index: int) -> Any:
    faiss: Any = importlib.import_module("faiss")
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_GPU_TEMP_BYTES)
    return resources


def _faiss_gpu_candidates(points: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """FAISS on the GPU that holds `points`; exercised only on machines that have one."""
    faiss: Any = importlib.import_module("faiss")
    importlib.import_module("faiss.contrib.torch_utils")
    device = points.get_device()
    base = points.contiguous()
    bounds, indices = [], []
    for queries in base.split(_FAISS_QUERIES):
        squares, index = faiss.knn_gpu(_gpu_resources(device), queries, base, width, device=device)
        bounds.append(squares[:, -1].clone())
        indices.append(index)
    return torch.cat(bounds), torch.cat(indices)
