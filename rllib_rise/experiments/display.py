"""What the terminal shows: live progress of runs and comparisons, and the result tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as BarProgress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rllib_rise.experiments.compare import BEYOND_BUDGET
from rllib_rise.experiments.progress import RunProgress

_BAR = 40
_LINE_SECONDS = 15
# Why a method may be without a figure that another has.
_NO_FIGURE = {"coverage": "not counted", "return": "no episode ended"}


class RunDisplay:
    """A live panel for one run; on a terminal it redraws itself, elsewhere it prints lines."""

    def __init__(self, title: str, budget: int, console: Console) -> None:
        self._title, self._budget, self._console = title, budget, console
        self._live = Live(console=console, refresh_per_second=4, transient=False)
        self._started = time.monotonic()
        self._first_steps: float | None = None
        self._last_line = 0.0
        self._shown: dict[str, float] = {}

    def __enter__(self) -> RunDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def update(self, row: dict[str, float]) -> None:
        """Show an iteration's figures."""
        self._shown = {**self._shown, **row}
        left = self._seconds_left(row["env_steps"])
        if self._console.is_terminal:
            self._live.update(self._panel(left))
        elif time.monotonic() - self._last_line > 10:
            self._last_line = time.monotonic()
            self._console.print(self._line(left), soft_wrap=True)

    def phase1(self, line: str) -> None:
        """Show how far Phase 1 is."""
        text = f"Phase 1: {line}"
        if self._console.is_terminal:
            self._live.update(Group(Text(self._title, style="bold"), Text(text)))
        else:
            self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def _seconds_left(self, env_steps: float) -> float | None:
        now = time.monotonic()
        if self._first_steps is None:
            self._first_steps, self._started = env_steps, now
            return None
        rate = (env_steps - self._first_steps) / max(now - self._started, 1e-9)
        return max(0.0, (self._budget - env_steps) / rate) if rate > 0 else None

    def _facts(self, left: float | None) -> dict[str, str]:
        row = self._shown
        entropy = next((v for k, v in row.items() if k.endswith("_entropy")), None)
        facts = {
            "steps": f"{int(row['env_steps']):,} / {self._budget:,}",
            "steps/s": f"{row['steps_per_second']:.0f}",
            "return": _number(row.get("episode_return_mean")),
            "intrinsic reward": _number(row.get("intrinsic_reward_mean")),
            "lambda": _number(row.get("intrinsic_lambda")),
            "state entropy": _number(entropy),
            "coverage": _number(row.get("coverage")),
            "time left": duration(left),
        }
        return {name: fact for name, fact in facts.items() if fact}

    def _panel(self, left: float | None) -> Group:
        table = Table.grid(padding=(0, 3))
        facts = self._facts(left)
        table.add_row(*[Text(name, style="dim") for name in facts])
        table.add_row(*facts.values())
        bar = Table.grid()
        bar.add_row(ProgressBar(total=self._budget, completed=self._shown["env_steps"], width=_BAR))
        return Group(Text(self._title, style="bold"), bar, table)

    def _line(self, left: float | None) -> str:
        return "  ".join(f"{name} {fact}" for name, fact in self._facts(left).items())


class CompareDisplay:
    """A live table with a bar per run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=2, transient=True)
        self._started = time.monotonic()
        self._first_total: int | None = None
        self._last_line = 0.0

    def __enter__(self) -> CompareDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def update(self, progress: list[RunProgress]) -> None:
        """Show how far each run is."""
        left = self._seconds_left(*self.steps(progress))
        if self._console.is_terminal:
            self._live.update(self.table(progress, left))
        elif time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            self._console.print(self.line(progress, left), soft_wrap=True, highlight=False)

    def steps(self, progress: Sequence[RunProgress]) -> tuple[int, int]:
        """Those done, and all there will be."""
        return sum(min(p.env_steps, p.budget) for p in progress), sum(p.budget for p in progress)

    def line(self, progress: Sequence[RunProgress], left: float | None) -> str:
        """How far it all is."""
        total, budget = self.steps(progress)
        done = sum(p.state == "done" for p in progress)
        return (
            f"{total:,} / {budget:,} steps, {done} / {len(progress)} runs done, "
            f"time left {duration(left) or '?'}"
        )

    def _seconds_left(self, total: int, budget: int) -> float | None:
        now = time.monotonic()
        if self._first_total is None:
            if total > 0:
                self._first_total, self._started = total, now
            return None
        rate = (total - self._first_total) / max(now - self._started, 1e-9)
        return max(0.0, (budget - total) / rate) if rate > 0 else None

    def table(self, progress: Sequence[RunProgress], left: float | None) -> Table:
        """A line per run."""
        return self.bars(progress, f"time left {duration(left) or '?'}", "method")

    def bars(self, progress: Sequence[RunProgress], title: str, name_of_entries: str) -> Table:
        """A line per run, with a bar."""
        table = Table(box=None, title=title, title_justify="left")
        for name in (name_of_entries, "seed", "", "steps", "coverage", ""):
            table.add_column(name, justify="right" if name in ("seed", "steps") else "left")
        for p in progress:
            table.add_row(
                p.entry.method,
                str(p.entry.seed),
                ProgressBar(total=p.budget, completed=min(p.env_steps, p.budget), width=_BAR // 2),
                f"{p.env_steps:,}",
                _number(p.coverage),
                p.state,
            )
        return table


class Lines:
    """What is being done, with a bar; elsewhere than on a terminal, now and then a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = BarProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._last_line = 0.0

    def __enter__(self) -> Lines:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def update(self, line: str, share: float | None = None) -> None:
        """Show what is being done, and how much of it all is done."""
        if self._console.is_terminal:
            total = None if share is None else 1.0
            self._bar.update(
                self._task, description=escape(line), completed=share or 0.0, total=total
            )
        elif time.monotonic() - self._last_line > 10:
            self._last_line = time.monotonic()
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)


def plain_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows with the same keys, numbers in few digits."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in rows[0]:
        number = any(isinstance(row[name], (int, float)) for row in rows)
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def comparison_table(summary: dict[str, Any]) -> Table:
    """The summary of a comparison for the terminal."""
    names = {figure for m in summary["methods"].values() for figure in m["figures"]}
    table = Table(
        title=f"{summary['budget']:,} environment steps per run; IQM and 95 % interval over seeds",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("method")
    table.add_column("runs", justify="right")
    figures = [figure for figure in ("coverage", "return") if figure in names]
    for figure in figures:
        table.add_column(figure)
    with_goal = any("goal" in m for m in summary["methods"].values())
    if with_goal:
        table.add_column("goal reached")
        table.add_column("median steps to it")
    for figure in figures:
        table.add_column(f"P({figure} > {summary['baseline']})")
    for method, values in summary["methods"].items():
        cells = [method, str(values["runs"])]
        for figure in figures:
            interval = values["figures"].get(figure)
            text = interval_text(interval) if interval else _NO_FIGURE[figure]
            if interval and interval["runs"] < values["runs"]:
                text += f" (of {interval['runs']} runs)"
            cells.append(text)
        if with_goal:
            goal = values.get("goal", {})
            cells.append(f"{goal['reached']} / {values['runs']}" if goal else "")
            cells.append(interval_text(goal.get("median_steps"), digits=0))
        better = summary["improvement"].get(method, {})
        cells += [interval_text(better.get(figure)) for figure in figures]
        table.add_row(*cells)
    return table


def interval_text(interval: dict[str, Any] | None, *, digits: int = 2) -> str:
    """`0.92 [0.90, 0.94]`; without brackets where there are too few seeds for an interval."""
    if not interval or interval["estimate"] is None:
        return ""
    estimate = _limit(interval["estimate"], digits)
    if interval["low"] is None:
        return estimate
    return f"{estimate} [{_limit(interval['low'], digits)}, {_limit(interval['high'], digits)}]"


def duration(seconds: float | None) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _limit(value: float | str, digits: int) -> str:
    return BEYOND_BUDGET if isinstance(value, str) else f"{value:,.{digits}f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
