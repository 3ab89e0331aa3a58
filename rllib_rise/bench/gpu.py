"""Neighbours on a GPU: FAISS against torch, and both against the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from rllib_rise.bench.measure import Figure, in_turn, median, ratio_of, threads
from rllib_rise.entropy import neighbor_distances
from rllib_rise.entropy.timing import usable_backends
from rllib_rise.errors import RiseError

_K = 5
_POINTS = {"quick": (1024, 16384), "full": (1024, 4096, 16384, 65536, 131072)}
_DIMENSIONS = {"quick": (128,), "full": (2, 28, 128)}
_TURNS = {"quick": 5, "full": 15}
# Beyond this a CPU takes minutes.
_MOST_ON_CPU = 16384


def on_gpu(
    num_threads: int, form: str, on_progress: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """The backends that work on the first CUDA device, in turn."""
    if not torch.cuda.is_available():
        raise RiseError("--gpu measures on a CUDA device, and torch sees none (`rise doctor`)")
    sizes = itertools.product(_POINTS[form], _DIMENSIONS[form])
    return device_against_cpu("cuda", sizes, num_threads, _TURNS[form], on_progress)


def device_against_cpu(
    device: str,
    sizes: Iterable[tuple[int, int]],
    num_threads: int,
    turns: int,
    on_progress: Callable[[str], None],
) -> tuple[list[Figure], dict[str, Any]]:
    """Seconds of each backend on a device, and of the CPU's own choice, for sizes (N, m)."""
    figures, rows = [], []
    backends = usable_backends(device)
    for n, m in sizes:
        on_progress(f"{device}: {n:,} points of {m} dimensions")
        points = torch.randn(n, m, generator=torch.Generator().manual_seed(0))
        there = points.to(device)
        calls: dict[str, Callable[[], Any]] = {
            f"{device}: {name}": partial(_search, there, name) for name in backends
        }
        if n <= _MOST_ON_CPU:
            calls["cpu: auto"] = partial(_search, points, "auto")
        with threads(num_threads):
            seconds = in_turn(calls, turns=turns)
        rows.append({"n": n, "m": m, "seconds": {name: median(s) for name, s in seconds.items()}})
        torch_seconds = seconds[f"{device}: torch"]
        for name, many in seconds.items():
            if name != f"{device}: torch":
                title = f"{n:,} x {m}: {name}, its time over that of torch on {device}"
                figures.append(ratio_of(title, many, torch_seconds))
    return figures, {"rows": rows}


def _search(points: torch.Tensor, backend: str) -> None:
    neighbor_distances(points, _K, backend=backend)
    if points.device.type == "cuda":
        torch.cuda.synchronize(points.device)
