"""Two things timed in turn, and the ratio of their times with an interval.

A machine that others use too is fast at one moment and slow at the next. So the two are timed
alternately, each pair gives a ratio, and what counts is the median of these ratios: what slows both
drops out, and what slows one moment is one ratio among many.

How fast a process is also depends on what memory it got when it started. So the full form starts
the processes anew a few times; each start gives one median, and the interval is about starts.
"""

from __future__ import annotations

import json
import operator
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats

_CONFIDENCE = 0.95
_GOALS = {">=": operator.ge, "<=": operator.le}
STARTS = {"quick": 1, "full": 6}
"""How often the processes that are compared are started."""


@dataclass(frozen=True)
class Figure:
    """One line of the summary.

    Attributes:
        figure: What is compared with what.
        ratio: Median over pairs, or the geometric mean of several starts' medians.
        low: Lower end of its 95 % interval.
        high: Upper end.
        goal: What it should be, `>= 10` or `<= 1.06`; None where nothing is asked.
    """

    figure: str
    ratio: float
    low: float
    high: float
    goal: str | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the whole interval is on the goal's side."""
        if self.goal is None:
            return None
        sign, bound = self.goal.split()
        worst = self.low if sign == ">=" else self.high
        return bool(_GOALS[sign](worst, float(bound)))

    def as_json(self) -> dict[str, Any]:
        """As it stands in summary.json."""
        return {**asdict(self), "holds": self.holds}


def ratio_of(
    name: str,
    dividends: Sequence[float],
    divisors: Sequence[float],
    goal: str | None = None,
) -> Figure:
    """The median of at least six paired ratios, and an interval between two of them.

    How many of n ratios are below the median is binomial. So the r-th smallest and the r-th largest
    enclose it with probability 1 - 2 P(B < r), and r is the largest with which that is 95 %.
    """
    ratios = np.sort(np.asarray(dividends) / np.asarray(divisors))
    r = int(stats.binom.ppf((1 - _CONFIDENCE) / 2, len(ratios), 0.5))
    if r == 0:
        raise ValueError(f"{name}: {len(ratios)} pairs have no interval of 95 %; six do")
    return Figure(name, float(np.median(ratios)), float(ratios[r - 1]), float(ratios[-r]), goal)


def ratio_over_starts(
    name: str,
    dividends: Sequence[Sequence[float]],
    divisors: Sequence[Sequence[float]],
    goal: str | None = None,
) -> Figure:
    """The geometric mean of the starts' median ratios, with Student's interval over the starts.

    One start has an interval over its pairs only.
    """
    starts = list(zip(dividends, divisors, strict=True))
    if len(starts) == 1:
        return ratio_of(name, *starts[0], goal)
    logs = np.log([np.median(np.asarray(over) / np.asarray(under)) for over, under in starts])
    reach = stats.t.ppf((1 + _CONFIDENCE) / 2, len(logs) - 1) * stats.sem(logs)
    low, middle, high = np.exp(logs.mean() + np.array((-reach, 0.0, reach)))
    return Figure(name, float(middle), float(low), float(high), goal)


def timed(call: Callable[[], Any], inner: int = 1) -> float:
    """Seconds per call, over `inner` calls in a row."""
    started = time.perf_counter()
    for _ in range(inner):
        call()
    return (time.perf_counter() - started) / inner


def in_turn(
    calls: Mapping[str, Callable[[], Any]],
    *,
    turns: int,
    least_seconds: float = 0.0,
    on_turn: Callable[[int], None] = lambda turn: None,
) -> dict[str, list[float]]:
    """Seconds of each, in turn and in alternating order, `turns` times after one that is not kept.

    Where one call is shorter than `least_seconds`, as many of them are timed together.
    """
    inner = {name: max(1, round(least_seconds / max(timed(c), 1e-9))) for name, c in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns):
        on_turn(turn)
        names = list(calls)[:: 1 if turn % 2 else -1]
        for name in names:
            seconds[name].append(timed(calls[name], inner[name]))
    return seconds


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch and FAISS use this many threads."""
    from rllib_rise.entropy.backends import installed_faiss

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    if not installed_faiss().importable:
        try:
            yield
        finally:
            torch.set_num_threads(before)
        return
    import faiss

    faiss_before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        faiss.omp_set_num_threads(faiss_before)


def in_new_process(module: str, *arguments: object) -> Any:
    """What a module prints, as JSON, when it is run."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def by_name(starts: Iterable[Mapping[str, list[float]]]) -> dict[str, list[list[float]]]:
    """Seconds of all starts, by what was timed."""
    found: dict[str, list[list[float]]] = {}
    for start in starts:
        for name, seconds in start.items():
            found.setdefault(name, []).append(seconds)
    return found


def median(values: Sequence[float] | Sequence[Sequence[float]]) -> float:
    """The middle of them, of all starts if there are several."""
    return float(np.median(np.concatenate([np.atleast_1d(one) for one in values])))
