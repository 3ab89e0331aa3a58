"""One training run: the loop, its checkpoints and its files."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rllib_rise.bonuses.registry import NONE
from rllib_rise.errors import ConfigError, RunDirectoryError
from rllib_rise.experiments.exploration import ExplorationTracker
from rllib_rise.experiments.interrupt import deferred_interrupt
from rllib_rise.experiments.phase1_files import write_report_of_phase1
from rllib_rise.experiments.returns import RecentReturns
from rllib_rise.experiments.rows import Row, lifetime_steps, metric_prefixes, row_figures
from rllib_rise.experiments.run_directory import MetricsFile, RunDirectory, write_json
from rllib_rise.experiments.schema import Experiment, build_config, check, parse_experiment
from rllib_rise.experiments.summary import summarise

logger = logging.getLogger(__name__)

_SAVE_SECONDS = 300


def train(
    experiment: Experiment,
    directory: Path,
    *,
    resume: bool = False,
    checkpoint_every: int = 50,
    keep_checkpoints: int = 2,
    cache: Path | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    on_phase1: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Train until the experiment's stop; return the final figures.

    Args:
        experiment: What to run.
        directory: The run directory; must not exist unless `resume`.
        resume: Go on from the newest checkpoint (from the start, where there is none).
        checkpoint_every: Iterations between checkpoints; there is one every five minutes besides,
            at the end, and after Ctrl-C, which ends the run behind the present iteration.
        keep_checkpoints: How many to keep.
        cache: A folder that keeps the fits of Phase 1 for other runs.
        on_row: Called with each iteration's figures.
        on_phase1: Called with a line of text now and then, before the first iteration.
    """
    run = RunDirectory(directory)
    check(experiment)
    going_on = resume and run.exists
    if going_on:
        saved = _check_same(experiment, run)
        if run.finished and saved["stop"] == experiment.resolved()["stop"]:
            return run.read_result()
    else:
        run.refuse_existing()
    config = build_config(experiment)
    if cache is not None:
        config.intrinsic(cache=cache.resolve())
    algorithm = config.build_algo()
    try:
        _check_budget(experiment, algorithm)
        # Only now: what cannot be built leaves nothing behind.
        run.open(experiment.resolved())
        training = _Training(experiment, run, algorithm, keep_checkpoints)
        with deferred_interrupt() as interrupted:
            training.prepare(interrupted, on_phase1)
            training.loop(interrupted, checkpoint_every, on_row)
        return training.finish()
    finally:
        algorithm.stop()


@dataclass
class _Progress:
    """How far a run is; what a checkpoint of ours adds to RLlib's."""

    iteration: int = 0
    env_steps: int = 0
    seconds: float = 0.0


class _Training:
    """A run under way."""

    def __init__(
        self, experiment: Experiment, run: RunDirectory, algorithm: Any, keep_checkpoints: int
    ) -> None:
        self._experiment, self._run, self._algorithm = experiment, run, algorithm
        self._keep = keep_checkpoints
        self._tracker = ExplorationTracker()
        self._progress = _restore(run, algorithm, self._tracker)
        self._warmup_steps = 0

    def prepare(self, interrupted: threading.Event, on_phase1: Callable[[str], None]) -> None:
        """Phase 1, if there is one and it has not run; a checkpoint right after it."""
        if self._experiment.method == NONE:
            return
        started = time.perf_counter()

        def show(line: str) -> None:
            if interrupted.is_set():
                raise KeyboardInterrupt
            self._run.log_phase1(line)
            on_phase1(line)

        report = self._algorithm.prepare_intrinsic(show)
        self._warmup_steps = self._algorithm.warmup_env_steps()
        if report is None:
            return
        write_report_of_phase1(self._run.path, report)
        self._progress.env_steps += report.env_steps
        self._progress.seconds += time.perf_counter() - started
        self._tracker.begin(self._progress.env_steps)
        self._save()

    def loop(
        self,
        interrupted: threading.Event,
        checkpoint_every: int,
        on_row: Callable[[Row], None],
    ) -> None:
        """Iterate until the experiment's stop."""
        from tensorboardX import SummaryWriter

        progress, stop = self._progress, self._experiment.stop
        metrics = MetricsFile(self._run.metrics, keep_iterations=progress.iteration)
        returns = RecentReturns(self._run.read_metrics())
        done = progress.env_steps >= stop.env_steps
        saved_at = time.monotonic()
        purge = progress.env_steps if progress.iteration else None
        with contextlib.closing(SummaryWriter(str(self._run.path), purge_step=purge)) as writer:
            while not done:
                row = self._iterate()
                returns.add(row)
                metrics.append(row)
                for name, value in row.items():
                    if math.isfinite(value):
                        writer.add_scalar(name, value, progress.env_steps)
                on_row(row)
                target = stop.episode_return
                solved = target is not None and row.get("episode_return_mean", -math.inf) >= target
                done = solved or progress.env_steps >= stop.env_steps
                due = progress.iteration % checkpoint_every == 0
                if done or due or interrupted.is_set() or _long_ago(saved_at):
                    saved_at = time.monotonic()
                    self._save()
                if interrupted.is_set() and not done:
                    raise KeyboardInterrupt

    def _iterate(self) -> Row:
        """One iteration and its figures."""
        progress = self._progress
        started = time.perf_counter()
        result = self._algorithm.train()
        elapsed = time.perf_counter() - started
        before, progress.env_steps = (
            progress.env_steps,
            lifetime_steps(result) + self._warmup_steps,
        )
        progress.iteration += 1
        progress.seconds += elapsed
        return {
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            "seconds": progress.seconds,
            "steps_per_second": (progress.env_steps - before) / elapsed,
            **row_figures(result, metric_prefixes(self._experiment)),
            **self._tracker.poll(self._algorithm, progress.env_steps),
        }

    def finish(self) -> dict[str, Any]:
        """Write the final figures."""
        self._tracker.save(self._run.exploration)
        result = summarise(self._run, self._tracker)
        write_json(self._run.result, result)
        return result

    def _save(self) -> None:
        self._run.add_checkpoint(self._progress.iteration, self._write, keep=self._keep)

    def _write(self, folder: Path) -> None:
        self._algorithm.save_to_path(str((folder / "algorithm").resolve()))
        self._tracker.save(folder / "exploration.npz")
        write_json(folder / "progress.json", asdict(self._progress))


def _long_ago(moment: float) -> bool:
    return time.monotonic() - moment > _SAVE_SECONDS


def _restore(run: RunDirectory, algorithm: Any, tracker: ExplorationTracker) -> _Progress:
    checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        return _Progress()
    algorithm.restore_from_path(str((checkpoint / "algorithm").resolve()))
    progress = _Progress(**json.loads((checkpoint / "progress.json").read_text()))
    tracker.load(checkpoint / "exploration.npz", progress.env_steps)
    logger.info("resumed from %s", checkpoint)
    return progress


def _check_budget(experiment: Experiment, algorithm: Any) -> None:
    """Phase 1 must leave something of the budget."""
    if experiment.method == NONE:
        return
    steps, budget = algorithm.pending_warmup_steps(), experiment.stop.env_steps
    if steps >= budget:
        raise ConfigError(
            f"Phase 1 takes {steps:,} steps (intrinsic.warmup_steps), which leaves nothing of "
            f"stop.env_steps={budget:,}: lower the one, or raise the other"
        )


def _check_same(experiment: Experiment, run: RunDirectory) -> dict[str, Any]:
    """A run may be resumed with another stop, and with nothing else changed; the saved one."""
    try:
        saved = parse_experiment(run.read_config()).resolved()
    except ConfigError as error:
        raise RunDirectoryError(f"{run.config} cannot be read any more: {error}") from error
    asked = experiment.resolved()
    changed = sorted(
        key for key in {*saved, *asked} - {"stop", "methods"} if saved.get(key) != asked.get(key)
    )
    if changed:
        raise RunDirectoryError(
            f"{run.path} was started with other settings under {', '.join(changed)}: "
            "choose another place with --out, or undo the change"
        )
    return saved
