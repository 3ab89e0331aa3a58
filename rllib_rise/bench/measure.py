"""Two things timed in turn, and the ratio of their times with an interval.

A machine that others use too is fast at one moment and slow at the next. So the two are timed
alternately, each pair gives a ratio, and what is reported is the median of these ratios: what
slows both drops out, and what slows one moment is one ratio among many.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

_CONFIDENCE = 0.95
_RESAMPLES = 2000
_GOALS = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Figure:
    """One line of the summary.

    Attributes:
        figure: What is compared with what.
        ratio: Median over pairs.
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
    """The median of paired ratios, with a percentile bootstrap over the pairs."""
    ratios = np.asarray(dividends) / np.asarray(divisors)
    draws = np.random.default_rng(0).integers(len(ratios), size=(_RESAMPLES, len(ratios)))
    medians = np.median(ratios[draws], axis=1)
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(medians, (tail, 1 - tail))
    return Figure(name, float(np.median(ratios)), float(low), float(high), goal)


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


def median(values: Sequence[float]) -> float:
    """The middle of them."""
    return float(np.median(values))
