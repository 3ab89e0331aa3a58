"""Seconds and memory of the bonus over the size of the batch."""

from __future__ import annotations

import itertools
import json
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from rllib_rise.bench.distances import searching_bonus
from rllib_rise.bench.measure import (
    Figure,
    in_new_process,
    median,
    ratio_over_starts,
    threads,
    timed,
)
from rllib_rise.bonuses import Transitions

_SIZES = {"quick": (1024, 16384), "full": (1024, 4096, 16384, 65536, 131072)}
_DIMENSIONS = {"quick": (2, 128), "full": (2, 28, 128)}
_GOALS = {"quick": None, "full": "<= 1"}
_PROCESSES = 3
_MOST_SECONDS, _MOST_CALLS = 1.0, 10
_MEGABYTE = 1e6
_STATUS = Path("/proc/self/status")


def growth(
    num_threads: int, form: str, on_progress: Callable[[str], None]
) -> tuple[list[Figure], dict[str, Any]]:
    """Seconds and extra memory of RISE's reward over N and m, in processes of their own."""
    rows = list(_growth_rows(num_threads, form, on_progress))
    most = max(_SIZES[form])
    largest = max((row for row in rows if row["n"] == most), key=lambda row: max(row["megabytes"]))
    name = f"growth: extra memory at N = {most:,}, GB"
    gigabytes = [[megabytes / 1000] for megabytes in largest["megabytes"]]
    figure = ratio_over_starts(name, gigabytes, [[1.0]] * _PROCESSES, _GOALS[form])
    return [figure], {"rows": rows}


def _growth_rows(
    num_threads: int, form: str, on_progress: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    # A process that has just started has no memory left over from before.
    for m, n in itertools.product(_DIMENSIONS[form], _SIZES[form]):
        on_progress(f"growth: {n:,} points of {m} dimensions")
        found = [in_new_process(__name__, n, m, num_threads) for _ in range(_PROCESSES)]
        yield {"n": n, "m": m, **{key: [one[key] for one in found] for key in found[0]}}


def _measure_growth(n: int, m: int, num_threads: int) -> dict[str, float]:
    points = torch.randn(n, m, generator=torch.Generator().manual_seed(0))
    bonus = searching_bonus("rise", m)
    with threads(num_threads), torch.no_grad():
        bonus.reward(Transitions(obs=points[:256]))  # libraries are loaded
        before = _peak_megabytes(anew=True)
        seconds = [timed(lambda: bonus.reward(Transitions(obs=points)))]
        megabytes = _peak_megabytes() - before
        while sum(seconds) < _MOST_SECONDS and len(seconds) <= _MOST_CALLS:
            seconds.append(timed(lambda: bonus.reward(Transitions(obs=points))))
    # The first call may have to load something, but of long ones there is no other.
    return {"seconds": median(seconds[1:] or seconds), "megabytes": megabytes}


def _peak_megabytes(anew: bool = False) -> float:
    """The most memory that this process has had, `anew` from now on where Linux can say so."""
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MEGABYTE
    if anew:
        _STATUS.with_name("clear_refs").write_text("5")
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / _MEGABYTE


if __name__ == "__main__":
    print(json.dumps(_measure_growth(*map(int, sys.argv[1:]))))
