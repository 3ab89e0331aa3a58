"""One training run: the loop, its checkpoints and its files."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
)

from rllib_rise.bonuses.registry import NONE, resolve_bonus
from rllib_rise.errors import ConfigError, RiseError, RunDirectoryError
from rllib_rise.experiments.exploration import ExplorationTracker
from rllib_rise.experiments.interrupt import deferred_interrupt
from rllib_rise.experiments.returns import RecentReturns, mean_return
from rllib_rise.experiments.run_directory import MetricsFile, RunDirectory, write_json
from rllib_rise.experiments.schema import Experiment, build_config, check, parse_experiment

logger = logging.getLogger(__name__)

_ENV_METRICS = {
    "episode_return_mean": EPISODE_RETURN_MEAN,
    "episode_len_mean": EPISODE_LEN_MEAN,
    "episodes": NUM_EPISODES,
}
_LEARNER_METRICS = ("policy_loss", "vf_loss", "entropy", "mean_kl_loss")
_FINAL_SHARE = 0.1
_SAVE_SECONDS = 300
Row = dict[str, float]


def train(
    experiment: Experiment,
    directory: Path,
    *,
    resume: bool = False,
    checkpoint_every: int = 50,
    keep_checkpoints: int = 2,
    on_row: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Train until the experiment's stop; return the final figures.

    Args:
        experiment: What to run.
        directory: The run directory; must not exist unless `resume`.
        resume: Go on from the newest checkpoint (from the start, where there is none).
        checkpoint_every: Iterations between checkpoints; there is one every five minutes besides,
            at the end, and after Ctrl-C, which ends the run behind the present iteration.
        keep_checkpoints: How many to keep.
        on_row: Called with each iteration's figures.
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
    algorithm = build_config(experiment).build_algo()
    try:
        # Only now: what cannot be built leaves nothing behind.
        run.open(experiment.resolved())
        return _loop(experiment, run, algorithm, checkpoint_every, keep_checkpoints, on_row)
    finally:
        algorithm.stop()


def _loop(
    experiment: Experiment,
    run: RunDirectory,
    algorithm: Any,
    checkpoint_every: int,
    keep: int,
    on_row: Callable[[Row], None],
) -> dict[str, Any]:
    from tensorboardX import SummaryWriter

    tracker = ExplorationTracker()
    iteration, env_steps, seconds = _restore(run, algorithm, tracker)
    metrics = MetricsFile(run.metrics, keep_iterations=iteration)
    returns = RecentReturns(run.read_metrics())
    writer = SummaryWriter(str(run.path), purge_step=env_steps or None)
    prefixes = _metric_prefixes(experiment)
    done = env_steps >= experiment.stop.env_steps
    saved_at = time.monotonic()
    with deferred_interrupt() as interrupted:
        while not done:
            started = time.perf_counter()
            result = algorithm.train()
            elapsed = time.perf_counter() - started
            iteration, seconds = iteration + 1, seconds + elapsed
            before, env_steps = env_steps, _lifetime_steps(result)
            row = {
                "iteration": iteration,
                "env_steps": env_steps,
                "seconds": seconds,
                "steps_per_second": (env_steps - before) / elapsed,
                **_figures(result, prefixes),
                **tracker.poll(algorithm, env_steps),
            }
            returns.add(row)
            metrics.append(row)
            for name, value in row.items():
                if math.isfinite(value):
                    writer.add_scalar(name, value, env_steps)
            on_row(row)
            target = experiment.stop.episode_return
            solved = target is not None and row.get("episode_return_mean", -math.inf) >= target
            done = solved or env_steps >= experiment.stop.env_steps
            due = iteration % checkpoint_every == 0 or time.monotonic() - saved_at > _SAVE_SECONDS
            if done or due or interrupted.is_set():
                saved_at = time.monotonic()
                progress = {"iteration": iteration, "env_steps": env_steps, "seconds": seconds}
                save = partial(_save, algorithm=algorithm, tracker=tracker, progress=progress)
                run.add_checkpoint(iteration, save, keep=keep)
            if interrupted.is_set() and not done:
                writer.close()
                raise KeyboardInterrupt
    writer.close()
    tracker.save(run.exploration)
    result = summarise(run, tracker)
    write_json(run.result, result)
    return result


def summarise(run: RunDirectory, tracker: ExplorationTracker) -> dict[str, Any]:
    """The final figures of a run. `return` is over the episodes that ended in its last tenth."""
    rows = run.read_metrics()
    last = rows[-1]
    assert last["env_steps"] is not None
    first_step = (1 - _FINAL_SHARE) * last["env_steps"]
    seconds = last["seconds"] or math.nan
    result: dict[str, Any] = {
        "env_steps": int(last["env_steps"]),
        "seconds": seconds,
        "steps_per_second": last["env_steps"] / seconds,
        "return": mean_return(row for row in rows if (row["env_steps"] or 0) > first_step),
    }
    explored = tracker.figures()
    if explored:
        result |= {**explored, "first_goal_steps": tracker.first_goal_steps}
    warnings = _warnings(rows)
    if warnings:
        result["warnings"] = warnings
    return result


def _warnings(rows: Sequence[Mapping[str, float | None]]) -> list[str]:
    """What a user should know about a run that went through."""
    silent = [
        any(name.endswith("_duplicates") and value == 1 for name, value in row.items())
        for row in rows
    ]
    if sum(silent) <= len(silent) / 2:
        return []
    return [
        f"the bonus was 0 in {sum(silent)} of {len(silent)} updates, because every k-th neighbour "
        "was at distance 0: observations are constant, or k is too small for the visits per state"
    ]


def _restore(
    run: RunDirectory, algorithm: Any, tracker: ExplorationTracker
) -> tuple[int, int, float]:
    checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        return 0, 0, 0.0
    algorithm.restore_from_path(str((checkpoint / "algorithm").resolve()))
    progress = json.loads((checkpoint / "progress.json").read_text())
    tracker.load(checkpoint / "exploration.npz", progress["env_steps"])
    logger.info("resumed from %s", checkpoint)
    return progress["iteration"], progress["env_steps"], progress["seconds"]


def _save(
    folder: Path, *, algorithm: Any, tracker: ExplorationTracker, progress: dict[str, float]
) -> None:
    algorithm.save_to_path(str((folder / "algorithm").resolve()))
    tracker.save(folder / "exploration.npz")
    write_json(folder / "progress.json", progress)


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


def _lifetime_steps(result: dict[str, Any]) -> int:
    try:
        return int(result[ENV_RUNNER_RESULTS][NUM_ENV_STEPS_SAMPLED_LIFETIME])
    except KeyError:
        raise RiseError(
            "no env runner returned a sample: the environment probably raised on all of them; "
            "rllib.num_env_runners=0 runs it in this process and shows its error"
        ) from None


def _metric_prefixes(experiment: Experiment) -> tuple[str, ...]:
    """How the metrics of the experiment's bonus begin."""
    if experiment.method == NONE:
        return ()
    return ("intrinsic_", f"{resolve_bonus(experiment.method).name}_")


def _figures(result: dict[str, Any], prefixes: tuple[str, ...]) -> Row:
    """The numbers of an RLlib result that a run keeps; several modules get their id in front."""
    figures = {}
    for name, key in _ENV_METRICS.items():
        value = result[ENV_RUNNER_RESULTS].get(key)
        # NaN where no episode ended in this iteration.
        figures[name] = value if value is not None and math.isfinite(value) else None
    learners = {
        module_id: values
        for module_id, values in result.get(LEARNER_RESULTS, {}).items()
        if not module_id.startswith("__")
    }
    for module_id, values in learners.items():
        prefix = "" if len(learners) == 1 else f"{module_id}/"
        for name, value in values.items():
            if name.startswith(prefixes) or name in _LEARNER_METRICS:
                figures[prefix + name] = value
    return {name: float(value) for name, value in figures.items() if value is not None}
