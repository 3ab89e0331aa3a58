"""Who searches neighbours fastest: what the choice of `auto` rests on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from rllib_rise.bench.measure import Figure, in_turn, median, ratio_of, threads
from rllib_rise.entropy import neighbor_distances
from rllib_rise.entropy.backends import BACKENDS, resolve_backend
from rllib_rise.errors import RiseError

_K = 5
_POINTS = {"quick": (1024, 16384), "full": (1024, 4096, 16384, 65536, 131072)}
_DIMENSIONS = {"quick": (128,), "full": (2, 28, 128, 1024)}
_TURNS = {"quick": 6, "full": 15}
# Beyond this a CPU takes minutes.
_MOST_ON_CPU = 16384

OnProgress = Callable[[str], None]


def on_cpu(
    num_threads: int, form: str, on_progress: OnProgress
) -> tuple[list[Figure], dict[str, Any]]:
    """The backends that work on the CPU, in turn."""
    points = [n for n in _POINTS[form] if n <= _MOST_ON_CPU]
    sizes = itertools.product(points, _DIMENSIONS[form])
    return compared("cpu", sizes, num_threads, _TURNS[form], on_progress)


def on_gpu(
    num_threads: int, form: str, on_progress: OnProgress
) -> tuple[list[Figure], dict[str, Any]]:
    """The backends that work on the first CUDA device, and the CPU's own choice, in turn."""
    if not torch.cuda.is_available():
        raise RiseError("--gpu measures on a CUDA device, and torch sees none (`rise doctor`)")
    sizes = itertools.product(_POINTS[form], _DIMENSIONS[form])
    return compared("cuda", sizes, num_threads, _TURNS[form], on_progress)


def compared(
    device: str,
    sizes: Iterable[tuple[int, int]],
    num_threads: int,
    turns: int,
    on_progress: OnProgress,
) -> tuple[list[Figure], dict[str, Any]]:
    """Seconds of each backend on a device for sizes (N, m), and each over torch's."""
    figures, rows = [], []
    backends = usable_backends(device)
    for n, m in sizes:
        on_progress(f"{device}: {n:,} points of {m} dimensions")
        points = torch.randn(n, m, generator=torch.Generator().manual_seed(0))
        there = points.to(device)
        calls: dict[str, Callable[[], Any]] = {
            f"{device}: {name}": partial(_search, there, name) for name in backends
        }
        if device != "cpu" and n <= _MOST_ON_CPU:
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


def usable_backends(device: torch.device | str) -> list[str]:
    """The backends that can search points on `device`, without `auto`."""
    found = []
    for backend in BACKENDS[1:]:
        try:
            found.append(resolve_backend(backend, device))
        except RiseError:
            continue
    return found


def _search(points: torch.Tensor, backend: str) -> None:
    neighbor_distances(points, _K, backend=backend)
    if points.device.type == "cuda":
        torch.cuda.synchronize(points.device)
