"""The bonus alone: against what others do, and over the size of the batch."""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rllib_rise.bench.measure import Figure, in_turn, ratio_of, threads, timed
from rllib_rise.bench.rlexplore import INSTALL, rlexplore_re3
from rllib_rise.bonuses import Bonus, Transitions, parse_settings, resolve_bonus

_ENVS, _STEPS, _SIZE, _K = 8, 128, 128, 5
_LEAST_SECONDS = 0.05
_TURNS = {"quick": 15, "full": 60}
_GROWTH = {"quick": (1024, 16384), "full": (1024, 4096, 16384, 65536, 131072)}
_DIMENSIONS = {"quick": (2, 128), "full": (2, 28, 128)}
_MEGABYTE = 2**20
_STATUS = Path("/proc/self/status")


def bonus_alone(
    num_threads: int, form: str, on_progress: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """RE3's reward for 8 environments x 128 steps x 128 dimensions, against others' ways to it."""
    on_progress("the bonus alone")
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(_STEPS, _ENVS, _SIZE, generator=generator)
    flat = points.transpose(0, 1).reshape(-1, _SIZE).contiguous()
    apart = flat.view(_ENVS, _STEPS, _SIZE)
    batch = Transitions(obs=flat, episodes=torch.arange(_ENVS).repeat_interleave(_STEPS))
    within = _bonus("re3", particles="episode")
    over_all = _bonus("re3", particles="batch")
    calls: dict[str, Callable[[], Any]] = {
        "ours, per environment": lambda: within.reward(batch),
        "cdist + topk, per environment": lambda: _cdist(apart),
        "ours, whole batch": lambda: over_all.reward(batch),
        "matrix product, whole batch": lambda: flat @ flat.T,
        "matrix product, per environment": lambda: torch.bmm(apart, apart.mT),
    }
    theirs = rlexplore_re3(points, _K)
    if theirs is not None:
        calls["RLeXplore, per environment"] = theirs
        expected = theirs().transpose(0, 1).flatten()
        torch.testing.assert_close(within.reward(batch), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        within.reward(batch),
        _cdist(apart).flatten(),
        rtol=1e-4,
        atol=1e-4,
    )
    with threads(num_threads), torch.no_grad():
        seconds = in_turn(calls, turns=_TURNS[form], least_seconds=_LEAST_SECONDS)
    ours, whole = seconds["ours, per environment"], seconds["ours, whole batch"]
    figures = [
        ratio_of(
            "bonus alone: times as fast as batched cdist + topk",
            seconds["cdist + topk, per environment"],
            ours,
            ">= 1.2",
        ),
        ratio_of(
            "bonus alone, whole batch: times the bare matrix product",
            whole,
            seconds["matrix product, whole batch"],
            "<= 2",
        ),
    ]
    raw: dict[str, Any] = {"seconds": seconds}
    if theirs is None:
        raw["skipped"] = f"RLeXplore is not installed: {INSTALL}"
    else:
        times = seconds["RLeXplore, per environment"]
        name = "bonus alone: times as fast as RLeXplore's RE3"
        figures.insert(0, ratio_of(name, times, ours, ">= 10"))
        # No search of neighbours among such points goes without it.
        name = "bonus alone: a bare product, times as fast as RLeXplore's RE3"
        figures.append(ratio_of(name, times, seconds["matrix product, per environment"]))
    return figures, raw


def growth(
    num_threads: int, form: str, on_progress: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """Seconds and extra memory of RISE's reward over N and m, each in a process of its own."""
    rows = list(_growth_rows(num_threads, form, on_progress))
    largest = max(rows, key=lambda row: (row["n"], row["m"]))
    gigabytes = largest["megabytes"] / 1024
    name = f"growth: extra memory at N = {largest['n']:,}, GB"
    return [Figure(name, gigabytes, gigabytes, gigabytes, "<= 1")], {"rows": rows}


def _growth_rows(
    num_threads: int, form: str, on_progress: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    # A process that has just started has no memory left over from before.
    for m, n in itertools.product(_DIMENSIONS[form], _GROWTH[form]):
        on_progress(f"growth: {n:,} points of {m} dimensions")
        command = [sys.executable, "-m", __name__, str(n), str(m), str(num_threads)]
        yield json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _measure_growth(n: int, m: int, num_threads: int) -> dict[str, Any]:
    points = torch.randn(n, m, generator=torch.Generator().manual_seed(0))
    bonus = _bonus("rise", m)
    with threads(num_threads), torch.no_grad():
        bonus.reward(Transitions(obs=points[:256]))  # libraries are loaded
        before = _peak_megabytes(anew=True)
        seconds = timed(lambda: bonus.reward(Transitions(obs=points)))
    return {"n": n, "m": m, "seconds": seconds, "megabytes": _peak_megabytes() - before}


def _peak_megabytes(anew: bool = False) -> float:
    """The most memory that this process has had, `anew` from now on where Linux can say so."""
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MEGABYTE
    if anew:
        _STATUS.with_name("clear_refs").write_text("5")
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / _MEGABYTE


def _bonus(method: str, size: int = _SIZE, **settings: Any) -> Bonus:
    cls = resolve_bonus(method)
    return cls(parse_settings(cls, {"k": _K, "encoder": "identity", **settings}), (size,))


def _cdist(points: Tensor) -> Tensor:
    """RE3's reward by torch's own functions, `[envs, steps]`."""
    distances = torch.cdist(points, points)
    return distances.topk(_K + 1, largest=False).values[..., -1].log1p()


if __name__ == "__main__":
    print(json.dumps(_measure_growth(*map(int, sys.argv[1:]))))
