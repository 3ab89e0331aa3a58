"""One training run from start to end: its checkpoints, and what becomes of errors."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.exceptions import RayError, RayTaskError

from rllib_rise.errors import (
    LostProcessError,
    RiseError,
    RunDirectoryError,
    RunFailedError,
    first_cause,
)
from rllib_rise.experiments.run.checkpoints import disk_is_full, reason, remedy
from rllib_rise.experiments.run.drain_notices import DrainNotices
from rllib_rise.experiments.run.interrupt import deferred_interrupt
from rllib_rise.experiments.run.rows import Row
from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.experiments.run.same_experiment import check_same
from rllib_rise.experiments.run.training import Training
from rllib_rise.experiments.schema import Experiment, check
from rllib_rise.experiments.shared_storage import check_shared

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
            at the end, when a node is announced to go, and after Ctrl-C or SIGTERM, which end
            the run behind the present iteration.
        keep_checkpoints: How many to keep.
        cache: A folder that keeps the fits of Phase 1 for other runs.
        on_row: Called with each iteration's figures.
        on_phase1: Called with a line of text now and then, before the first iteration.

    Raises:
        LostProcessError: A learner died, or the node that it was on, or no env runner takes steps
            any more. Calling it again with `resume` goes on from the last checkpoint.
        NonFiniteError: Observations, rewards or losses are NaN or infinite.
        RunFailedError: Other code raised an error: the environment, a library. error.txt in the run
            directory has its traceback.
    """
    run = RunDirectory(directory)
    check(experiment)
    going_on = resume and run.exists
    if going_on:
        saved = check_same(experiment, run)
        if run.finished and saved["stop"] == experiment.resolved()["stop"]:
            return run.read_result()
        checkpoint = run.latest_checkpoint()
    else:
        run.refuse_existing()
        checkpoint = None
    try:
        with contextlib.closing(Training(experiment, run, cache=cache)) as training:
            check_shared(directory)  # again: nodes may have joined that write checkpoints
            # Only now: what cannot be built leaves nothing behind.
            run.open(experiment.resolved())
            if checkpoint is not None:
                training.restore(checkpoint)
                run.go_on_from(checkpoint)

            def save() -> None:
                progress = training.progress
                run.add_checkpoint(
                    progress.iteration,
                    training.write,
                    env_steps=progress.env_steps,
                    keep=keep_checkpoints,
                )

            try:
                _until_done(training, save, checkpoint_every, on_row, on_phase1)
            except RayTaskError as error:
                # An error of the run's own code would come again; that of a learner which misses
                # another one would not.
                if not training.lost_learner():
                    raise
                raise LostProcessError("the run has lost a learner") from error
            return training.finish()
    except RiseError:
        raise
    except RayError as error:
        if isinstance(error, RayTaskError):
            raise _failed(run, error) from error
        first_line = str(error).strip().splitlines()[0]
        raise LostProcessError(f"the run has lost a process: {first_line}") from error
    except OSError as error:
        if not disk_is_full(error):
            raise _failed(run, error) from error
        raise RunDirectoryError(
            f"{run.path} cannot be written to: {reason(error)}. Its checkpoints are whole: "
            f"{remedy(error)}, then go on with --resume"
        ) from error
    except Exception as error:
        raise _failed(run, error) from error


def _failed(run: RunDirectory, error: Exception) -> Exception:
    """What to tell of an error that is not ours; its traceback is kept for whoever can fix it."""
    told = first_cause(error)
    if not run.exists:
        logger.error("the traceback:", exc_info=error)
        return RunFailedError(f"the run could not be built: {told}. Nothing was written")
    with contextlib.suppress(OSError):  # which may be what it is all about
        run.error.write_text("".join(traceback.format_exception(error)))
    return RunFailedError(
        f"the run failed with {told}. The traceback is in {run.error}; once fixed, --resume goes on"
    )


def _until_done(
    training: Training,
    save: Callable[[], None],
    checkpoint_every: int,
    on_row: Callable[[Row], None],
    on_phase1: Callable[[str], None],
) -> None:
    """Phase 1 and all iterations, with a checkpoint now and then."""
    notices = DrainNotices()
    with deferred_interrupt() as interrupted:
        if training.prepare(_until(interrupted, on_phase1)):
            save()
        saved_at = time.monotonic()
        while not training.done:
            on_row(training.iterate())
            due = training.progress.iteration % checkpoint_every == 0 or notices.new()
            if training.done or due or interrupted.is_set() or _long_ago(saved_at):
                saved_at = time.monotonic()
                save()
            if interrupted.is_set() and not training.done:
                raise KeyboardInterrupt


def _until(interrupted: threading.Event, on_phase1: Callable[[str], None]) -> Callable[[str], None]:
    """Passes lines on until Ctrl-C was pressed: then Phase 1 ends with the next one."""

    def show(line: str) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        on_phase1(line)

    return show


def _long_ago(moment: float) -> bool:
    return time.monotonic() - moment > _SAVE_SECONDS
