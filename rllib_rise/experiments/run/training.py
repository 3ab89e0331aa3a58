"""A training run under way: the algorithm, its checkpoints, and what is written of it."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ray.exceptions import RayError

from rllib_rise.bonuses.registry import NONE
from rllib_rise.errors import ConfigError, LostProcessError, NonFiniteError
from rllib_rise.experiments.run.checkpoints import warn_of_strangers
from rllib_rise.experiments.run.exploration import ExplorationTracker
from rllib_rise.experiments.run.phase1_files import write_report_of_phase1
from rllib_rise.experiments.run.returns import RecentReturns
from rllib_rise.experiments.run.rows import (
    Row,
    lifetime_steps,
    metric_prefixes,
    row_figures,
    update_losses,
)
from rllib_rise.experiments.run.run_directory import MetricsFile, RunDirectory, write_json
from rllib_rise.experiments.run.summary import summarise
from rllib_rise.experiments.schema import Experiment, build_config, check_warmup
from rllib_rise.rllib.reseed import reseed_env_runners

logger = logging.getLogger(__name__)

_PING_SECONDS = 10.0
# How often env runners that have worked may exceed their time for a batch before they count as
# lost: RLlib restarts those that die, and new nodes of a cluster take minutes.
_STALLED_TIMEOUTS = 10


@dataclass
class Progress:
    """How far a run is; what a checkpoint of ours adds to RLlib's."""

    iteration: int = 0
    env_steps: int = 0
    seconds: float = 0.0


class Training:
    """A run under way: the algorithm, what is counted beside it, and the run's files.

    Args:
        experiment: What to run.
        run: Its directory, which must be opened before anything is written.
        cache: A folder that keeps the fits of Phase 1 for other runs.
        events: Whether to write TensorBoard's files.

    Attributes:
        progress: How far it is.
        done: Whether the experiment's stop is reached.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        *,
        cache: Path | None = None,
        events: bool = True,
    ) -> None:
        self._experiment, self._run = experiment, run
        config = build_config(experiment)
        if cache is not None:
            config.intrinsic(cache=cache.resolve())
        self._algorithm = config.build_algo()
        self.progress, self.done = Progress(), False
        self._tracker = ExplorationTracker()
        self._warmup_steps = 0
        self._events = events
        self._files: _Files | None = None
        self._last_step, self._patience = 0.0, 1
        try:
            _check_budget(experiment, self._algorithm)
        except ConfigError:
            self.close()
            raise

    def restore(self, checkpoint: Path) -> None:
        """Go on from what `write` wrote."""
        warn_of_strangers(checkpoint)
        self._algorithm.restore_from_path(str((checkpoint / "algorithm").resolve()))
        self.progress = Progress(**json.loads((checkpoint / "progress.json").read_text()))
        reseed_env_runners(self._algorithm, self.progress.env_steps)
        self._tracker.load(checkpoint / "exploration.npz", self.progress.env_steps)
        self.done = self.progress.env_steps >= self._experiment.stop.env_steps
        self._close_files()
        logger.info("resumed from %s", checkpoint)

    def write(self, folder: Path) -> None:
        """Everything that `restore` needs."""
        self._algorithm.save_to_path(str((folder / "algorithm").resolve()))
        _check_learners(self._algorithm.learner_group)
        self._tracker.save(folder / "exploration.npz")
        write_json(folder / "progress.json", asdict(self.progress))

    def prepare(self, on_phase1: Callable[[str], None] = lambda line: None) -> bool:
        """Phase 1, if there is one and it has not run; whether it ran now."""
        if self._experiment.method == NONE:
            return False
        started = time.perf_counter()

        def show(line: str) -> None:
            self._run.log_phase1(line)
            on_phase1(line)

        report = self._algorithm.prepare_intrinsic(show)
        self._warmup_steps = self._algorithm.warmup_env_steps()
        if report is None:
            return False
        write_report_of_phase1(self._run.path, report)
        self.progress.env_steps += report.env_steps
        self.progress.seconds += time.perf_counter() - started
        self._tracker.begin(self.progress.env_steps)
        return True

    def iterate(self) -> Row:
        """One iteration: its figures, which are also written.

        Raises:
            NonFiniteError: The update's loss was NaN or infinite.
            LostProcessError: No env runner has taken a step for long.
        """
        if self._files is None:
            self._files = _Files(self._run, self.progress, self._events)
            self._last_step = time.monotonic()
        progress, stop = self.progress, self._experiment.stop
        started = time.perf_counter()
        result = self._algorithm.train()
        elapsed = time.perf_counter() - started
        before, progress.env_steps = (
            progress.env_steps,
            lifetime_steps(result) + self._warmup_steps,
        )
        progress.iteration += 1
        progress.seconds += elapsed
        self._check_steps(progress.env_steps - before)
        self._check_losses(result)
        row = {
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            "seconds": progress.seconds,
            "steps_per_second": (progress.env_steps - before) / elapsed,
            **row_figures(result, metric_prefixes(self._experiment)),
            **self._alive(),
            **self._tracker.poll(self._algorithm, progress.env_steps),
        }
        self._files.append(row)
        target = stop.episode_return
        solved = target is not None and row.get("episode_return_mean", -math.inf) >= target
        self.done = solved or progress.env_steps >= stop.env_steps
        return row

    def _check_steps(self, taken: int) -> None:
        """Raise where env runners do not come to take any: RLlib would try for ever."""
        config = self._algorithm.config
        if taken or not config.num_env_runners:
            self._last_step, self._patience = time.monotonic(), _STALLED_TIMEOUTS
            return
        timeout, waited = config.sample_timeout_s, time.monotonic() - self._last_step
        if waited < self._patience * timeout:
            return
        self._algorithm.env_runner_group._worker_manager.clear()  # they do not stop when asked
        raise LostProcessError(
            f"no env runner has taken a step for {waited:.0f} s: environments raise errors or "
            f"hang, or a batch takes longer than rllib.sample_timeout_s={timeout:g}. What they "
            "say is in Ray's logs of their host (by default /tmp/ray/session_latest/logs); "
            "rllib.num_env_runners=0 runs an environment in this process, where its error is seen"
        )

    def _check_losses(self, result: dict[str, Any]) -> None:
        """Raise where a loss is not finite: RLlib would go on with whatever it did to networks."""
        if self._algorithm.config.torch_skip_nan_gradients:
            return
        for module_id, loss in update_losses(result).items():
            if not math.isfinite(loss):
                raise NonFiniteError(
                    f"the loss of module {module_id!r} is {loss} at iteration "
                    f"{self.progress.iteration}: lower rllib.lr or the size of rewards, or leave "
                    "such updates out with rllib.torch_skip_nan_gradients=true. The checkpoints "
                    "are from before"
                )

    def _alive(self) -> Row:
        """How many env runners there are, where they are processes of their own."""
        if not self._algorithm.config.num_env_runners:
            return {}
        return {"env_runners": self._algorithm.env_runner_group.num_healthy_remote_workers()}

    def lost_learner(self) -> bool:
        """Whether a learner in a process of its own is dead."""
        group = self._algorithm.learner_group
        if not group.is_remote:
            return False
        answers = group.foreach_learner(lambda learner: True, timeout_seconds=_PING_SECONDS)
        return any(isinstance(answer.get(), RayError) for answer in answers) or (
            group._worker_manager.num_healthy_actors() < len(group)
        )

    def finish(self) -> dict[str, Any]:
        """Write the final figures."""
        self._tracker.save(self._run.exploration)
        result = summarise(self._run, self._tracker)
        write_json(self._run.result, result)
        return result

    def close(self) -> None:
        """End the algorithm's processes and close the files."""
        self._close_files()
        _stop_env_runners(self._algorithm)
        self._algorithm.stop()

    def _close_files(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None


class _Files:
    """metrics.csv and TensorBoard's events, which go on behind the present iteration."""

    def __init__(self, run: RunDirectory, progress: Progress, events: bool) -> None:
        self._metrics = MetricsFile(run.metrics, keep_iterations=progress.iteration)
        self._returns = RecentReturns(run.read_metrics())
        self._writer = None
        if events:
            from tensorboardX import SummaryWriter

            purge = progress.env_steps if progress.iteration else None
            self._writer = SummaryWriter(str(run.path), purge_step=purge)

    def append(self, row: Row) -> None:
        """Write a row, and give it the mean return of recent episodes."""
        self._returns.add(row)
        self._metrics.append(row)
        if self._writer is None:
            return
        for name, value in row.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, row["env_steps"])

    def close(self) -> None:
        """Finish what is being written."""
        if self._writer is not None:
            self._writer.close()


def _stop_env_runners(algorithm: Any) -> None:
    """RLlib would ask those in processes of their own to stop, and wait for ever if one hangs."""
    for group in (algorithm.env_runner_group, algorithm.eval_env_runner_group):
        if group is None or not group.num_remote_workers():
            continue
        group.foreach_env_runner(
            lambda runner: runner.stop(),
            healthy_only=False,
            local_env_runner=False,
            timeout_seconds=algorithm.config.sample_timeout_s,
        )
        group._worker_manager.clear()


def _check_learners(group: Any) -> None:
    """RLlib does not look whether a learner in a process of its own could write its part."""
    if group.is_remote and group._worker_manager.num_healthy_actors() < len(group):
        raise LostProcessError(
            "a learner died while it wrote its part of a checkpoint: its node went away, or cannot "
            "write there (is the disk full?). The checkpoints before it are whole"
        )


def _check_budget(experiment: Experiment, algorithm: Any) -> None:
    """Phase 1 must leave something of the budget."""
    if experiment.method == NONE:
        return
    check_warmup(algorithm.pending_warmup_steps(), experiment.stop.env_steps)
