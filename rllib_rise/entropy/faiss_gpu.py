"""FAISS on a GPU: whether it can be used, and its search.

`knn_gpu` without a usable GPU ends the process, and no handler can catch that. So before its first
use a child process tries it.
"""

import functools
import importlib
import signal
import subprocess
import sys
from typing import Any

import torch
from torch import Tensor

from rllib_rise.entropy.candidates import torch_candidates
from rllib_rise.entropy.faiss_search import named_errors

# An abort would leave a core file of gigabytes, hence the limit.
PROBE = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import faiss, torch
import faiss.contrib.torch_utils
points = torch.eye(64, device={device!r})
resources = faiss.StandardGpuResources()
resources.setTempMemory(2**20)
squares, index = faiss.knn_gpu(resources, points, points, 2, device={index})
found = index[:, 0].tolist()
if found != list(range(64)):
    raise SystemExit(f"wrong neighbours: {{found}}")
"""
_PROBE_SECONDS = 120.0

_QUERIES = 2**14
_TEMP_BYTES = 2**28
_MAX_WIDTH = 2048


@functools.cache
def gpu_problem(device: int = 0) -> str | None:
    """Tries FAISS on a CUDA device, once per process, in a child process.

    Args:
        device: Its number.

    Returns:
        One line that says why FAISS cannot be used there; None if it can.
    """
    return probe(PROBE.format(device=f"cuda:{device}", index=device))


def probe(code: str, *, timeout: float = _PROBE_SECONDS) -> str | None:
    """Runs Python code in a child process; says in one line how it failed, None if it did not."""
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return f"a child process that tried it did not end within {timeout:g} s"
    if done.returncode == 0:
        return None
    status = f"exit code {done.returncode}"
    if done.returncode < 0:
        status = f"signal {signal.Signals(-done.returncode).name}"
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return (
        f"a child process that tried it ended with {status}: {said[-1] if said else 'no message'}"
    )


def gpu_candidates(points: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Indices of the `width` nearest [n, width], the point itself among them, and bounds [n].

    The tensors are FAISS's input and output as they are, on torch's current stream of their device.
    FAISS reserves as much temporary memory as it is allowed to, and may ask for more where one call
    needs it, which its number of queries bounds.
    """
    if width > _MAX_WIDTH:
        return torch_candidates(points, width)
    faiss: Any = importlib.import_module("faiss")
    importlib.import_module("faiss.contrib.torch_utils")
    number, base = points.get_device(), points.contiguous()
    bound = torch.empty(len(base), device=base.device)
    index = torch.empty(len(base), width, dtype=torch.int64, device=base.device)
    # FAISS takes the stream of the current device, whichever device it is to search on.
    with torch.cuda.device(number):
        for start in range(0, len(base), _QUERIES):
            rows = slice(start, start + _QUERIES)
            with named_errors():
                squares, _ = faiss.knn_gpu(
                    _resources(number), base[rows], base, width, I=index[rows], device=number
                )
            bound[rows] = squares[:, -1]
    return index, bound


@functools.cache
def _resources(device: int) -> Any:
    faiss: Any = importlib.import_module("faiss")
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_TEMP_BYTES)
    return resources
