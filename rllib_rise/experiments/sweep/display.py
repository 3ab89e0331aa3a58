"""What the terminal shows of a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rllib_rise.experiments.display import CompareDisplay, duration
from rllib_rise.experiments.progress import RunProgress

_UNDER_WAY = ("running", "waiting")


class SweepDisplay(CompareDisplay):
    """How many trials are in which state, and a bar for each that runs: there may be hundreds.

    Args:
        console: Where to show it.
        trials: How many there will be. Tune makes them when there is room for them.
        budget: Steps of each.
    """

    def __init__(self, console: Console, trials: int, budget: int) -> None:
        super().__init__(console)
        self._trials, self._budget = trials, budget

    def steps(self, progress: Sequence[RunProgress]) -> tuple[int, int]:
        """Those done, and all there will be: what was ended early does not go on."""
        done = sum(p.env_steps for p in progress)
        left = sum(max(0, p.budget - p.env_steps) for p in progress if p.state in _UNDER_WAY)
        return done, done + left + (self._trials - len(progress)) * self._budget

    def line(self, progress: Sequence[RunProgress], left: float | None) -> str:
        """`27 trials: 5 done, 2 running, 20 waiting; time left 1:20`."""
        states = Counter(p.state for p in progress)
        states["waiting"] += self._trials - len(progress)
        order = ("done", "stopped", "failed", "running", "waiting")
        counts = ", ".join(f"{states[state]} {state}" for state in order if states[state])
        return f"{self._trials} trials: {counts}; time left {duration(left) or '?'}"

    def table(self, progress: Sequence[RunProgress], left: float | None) -> Table:
        """A line per trial that runs."""
        running = [p for p in progress if p.state == "running"]
        return self.bars(running, self.line(progress, left), "setting")
