"""How long the backends take, measured in turn: what the choice of `auto` rests on.

    python -m rllib_rise.entropy.timing --points 1024 8192 --dimensions 28 128 --threads 1

prints a table; on a machine with a GPU, `--device cuda` measures those that run there.
"""

import argparse
import statistics
import time
from collections.abc import Iterable

import torch

from rllib_rise.entropy.backends import BACKENDS, resolve_backend
from rllib_rise.entropy.faiss_search import load_faiss
from rllib_rise.entropy.neighbors import neighbor_distances
from rllib_rise.errors import RiseError


def usable_backends(device: torch.device | str) -> list[str]:
    """The backends that can search points on `device`, without `auto`."""
    found = []
    for backend in BACKENDS[1:]:
        try:
            found.append(resolve_backend(backend, device))
        except RiseError:
            continue
    return found


def backend_seconds(
    num_points: int,
    dimension: int,
    *,
    device: torch.device | str = "cpu",
    k: int = 5,
    backends: Iterable[str] | None = None,
    turns: int = 5,
    seed: int = 0,
) -> dict[str, float]:
    """Seconds that each backend takes for the neighbours of Gaussian points.

    Args:
        num_points: N.
        dimension: m.
        device: Where the points are.
        k: How many neighbours.
        backends: Which to time; all that are usable on the device by default.
        turns: How often; they take turns, after one call of each that does not count.
        seed: Of the points.

    Returns:
        The median seconds of one call, by the backend's name.
    """
    names = usable_backends(device) if backends is None else list(backends)
    points = torch.randn(num_points, dimension, generator=torch.Generator().manual_seed(seed))
    points = points.to(device)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(turns + 1):
        for name in names:
            took = _seconds(points, k, name)
            if turn > 0:
                seconds[name].append(took)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _seconds(points: torch.Tensor, k: int, backend: str) -> float:
    _wait_for(points.device)
    started = time.perf_counter()
    neighbor_distances(points, k, backend=backend)
    _wait_for(points.device)
    return time.perf_counter() - started


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(arguments: list[str] | None = None) -> None:
    """Print a table of milliseconds."""
    parser = argparse.ArgumentParser(description="Time the k-NN backends.")
    parser.add_argument("--points", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 28, 128])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="of torch and FAISS, on the CPU")
    parser.add_argument("--turns", type=int, default=5)
    chosen = parser.parse_args(arguments)
    names = usable_backends(chosen.device)
    if chosen.threads is not None:
        torch.set_num_threads(chosen.threads)
        if "faiss" in names:
            load_faiss().omp_set_num_threads(chosen.threads)
    print(f"{'N':>8} {'m':>5}  " + "  ".join(f"{name:>12}" for name in names) + "  [ms]")
    for num_points in chosen.points:
        for dimension in chosen.dimensions:
            seconds = backend_seconds(
                num_points, dimension, device=chosen.device, backends=names, turns=chosen.turns
            )
            times = "  ".join(f"{1e3 * seconds[name]:12.3f}" for name in names)
            print(f"{num_points:8} {dimension:5}  {times}", flush=True)


if __name__ == "__main__":
    main()
