"""FAISS on a GPU."""

import functools
import importlib
from typing import Any

import torch
from torch import Tensor

from rllib_rise.entropy.candidates import torch_candidates

_QUERIES = 2**14
_TEMP_BYTES = 2**28
_MAX_WIDTH = 2048


def gpu_candidates(points: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Indices of the `width` nearest [n, width], the point itself among them, and bounds [n].

    Exercised only on machines that have a GPU.
    """
    if width > _MAX_WIDTH:
        return torch_candidates(points, width)
    faiss: Any = importlib.import_module("faiss")
    importlib.import_module("faiss.contrib.torch_utils")
    device = points.get_device()
    base = points.contiguous()
    indices, bounds = [], []
    for queries in base.split(_QUERIES):
        squares, index = faiss.knn_gpu(_resources(device), queries, base, width, device=device)
        indices.append(index)
        bounds.append(squares[:, -1].clone())
    return torch.cat(indices), torch.cat(bounds)


@functools.cache
def _resources(device: int) -> Any:
    faiss: Any = importlib.import_module("faiss")
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_TEMP_BYTES)
    return resources
