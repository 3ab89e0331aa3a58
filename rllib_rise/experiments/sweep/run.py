"""Run a sweep with Ray Tune.

<out>/sweep.json             what was asked
<out>/runs/<trial>/          a run directory each, with trial.json: values and seed
<out>/tune/                  Tune's own state and checkpoints
<out>/phase1-cache/          fits of Phase 1, shared by the trials
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from ray import tune
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler
from ray.tune.search import Repeater
from ray.tune.search.basic_variant import BasicVariantGenerator

from rllib_rise.errors import MissingExtraError, RiseError, RunDirectoryError
from rllib_rise.experiments.progress import PlannedRun, RunProgress
from rllib_rise.experiments.resources import requested
from rllib_rise.experiments.run.run_directory import (
    RunDirectory,
    already_there,
    holds_something,
    write_json,
)
from rllib_rise.experiments.run.same_experiment import refuse_changes
from rllib_rise.experiments.sweep.schema import METRICS, Sweep
from rllib_rise.experiments.sweep.space import Dimension, label
from rllib_rise.experiments.sweep.trial import (
    RUNS,
    SWEEP,
    SweepTrial,
    chosen_values,
    trial_experiment,
    trial_seed,
)

_STATE = "tune"
_FAILURES = 2
_CHECKPOINT_EVERY = 10
# With population based training a trial may go on from what another has long since left behind.
_KEPT = {"none": 2, "asha": 2, "pbt": 8}
# Tune writes what it knows of its trials this often; by default so seldom that short trials would
# begin anew after the driver has died.
_SNAPSHOT_SECONDS = "5"
_TELL_SECONDS = 0.5
_STATES = {
    "PENDING": "waiting",
    "PAUSED": "waiting",
    "RUNNING": "running",
    "TERMINATED": "done",
    "ERROR": "failed",
}


def run_sweep(
    sweep: Sweep,
    out: Path,
    *,
    resume: bool = False,
    max_concurrent: int | None = None,
    checkpoint_every: int = _CHECKPOINT_EVERY,
    on_progress: Callable[[list[RunProgress]], None] = lambda progress: None,
) -> RiseError | None:
    """Run every trial; Ray must run.

    Args:
        sweep: What to run.
        out: Where to write; must not exist unless `resume`.
        resume: Go on with what is there. Finished trials are not run again.
        max_concurrent: Trials at a time; by default as many as there are CPUs for. Resuming keeps
            what it was begun with.
        checkpoint_every: Iterations between checkpoints of a trial.
        on_progress: Called with how far the trials are, now and then and at the end. Those that
            Tune has not made yet are not among them.

    Returns:
        What is to be said of trials that failed; the others are finished all the same.
    """
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", _SNAPSHOT_SECONDS)
    # There is no return before an episode has ended; schedulers wait for one.
    os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # which greets whatever the verbosity
    going_on = _open(sweep, out, resume, max_concurrent)
    data = sweep.as_data()
    trainable = tune.with_resources(
        tune.with_parameters(SweepTrial, sweep=data, out=str(out.resolve())),
        lambda config: requested(trial_experiment(data, config)),
    )
    _Watch.tell = staticmethod(on_progress)
    space = _param_space(sweep)
    state = out.resolve() / _STATE
    if going_on and tune.Tuner.can_restore(str(state)):
        tuner = tune.Tuner.restore(
            str(state),
            trainable,
            param_space=space,
            resume_unfinished=True,
            resume_errored=True,
        )
    else:
        tuner = tune.Tuner(
            trainable,
            param_space=space,
            tune_config=_tune_config(sweep, max_concurrent),
            run_config=tune.RunConfig(
                name=_STATE,
                storage_path=str(out.resolve()),
                failure_config=tune.FailureConfig(max_failures=_FAILURES),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=checkpoint_every,
                    checkpoint_at_end=True,
                    num_to_keep=_KEPT[sweep.search.scheduler],
                ),
                callbacks=[_Watch(sweep, out)],
                verbose=0,
            ),
        )
    results = tuner.fit()
    if _Watch.unfinished:  # Tune ends at Ctrl-C as if all were done
        raise KeyboardInterrupt
    failed = [result for result in results if result.error is not None]
    if not failed:
        return None
    told = "; ".join(dict.fromkeys(str(one.error).strip().splitlines()[-1] for one in failed))
    return RiseError(
        f"{len(failed)} of {len(results)} trials failed ({told}). Tracebacks are in error.txt of "
        f"{failed[0].path} and the like; once that is fixed, --resume goes on"
    )


class _Watch(tune.Callback):
    """Tells how far the trials are.

    Tune keeps its callbacks in a file, to have them again when it goes on. Whom to tell does not
    belong there: that is this process' business, and so the class'.
    """

    tell: ClassVar[Callable[[list[RunProgress]], None]]
    unfinished: ClassVar[int] = 0

    def __init__(self, sweep: Sweep, out: Path) -> None:
        self._sweep, self._out = sweep, out
        self._told = -math.inf

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Something has happened to one of them."""
        over = sum(_STATES[trial.status] in ("done", "failed") for trial in trials)
        type(self).unfinished = self._sweep.search.num_trials() - over
        if time.monotonic() - self._told > _TELL_SECONDS:
            self._tell(trials)
            self._told = time.monotonic()

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        """All are over, or called so because it was interrupted."""
        self._tell(trials)

    def _tell(self, trials: Any) -> None:
        type(self).tell([self._progress(trial) for trial in trials])

    def _progress(self, trial: Any) -> RunProgress:
        folder, result = self._out / RUNS / trial.trial_id, trial.last_result
        state = _STATES[trial.status]
        if state == "done" and not RunDirectory(folder).finished:
            state = "stopped"
        return RunProgress(
            PlannedRun(
                label(chosen_values(trial.config)), trial_seed(self._sweep, trial.config), folder
            ),
            env_steps=int(result.get("env_steps", 0)),
            budget=self._sweep.experiment.stop.env_steps,
            state=state,
            coverage=result.get("coverage"),
        )


def _open(sweep: Sweep, out: Path, resume: bool, max_concurrent: int | None) -> bool:
    """Whether there is something to go on with."""
    asked, path = sweep.as_data(), out / SWEEP
    if holds_something(out):
        if not resume:
            raise already_there(out)
        if not path.exists():
            raise RunDirectoryError(f"{out} holds no sweep: choose another place with --out")
        begun = json.loads(path.read_text())
        # Tune keeps it with its trials, and takes no other when it goes on.
        limit = begun.pop("max_concurrent", None)
        sections = ({**one["experiment"], "search": one["search"]} for one in (begun, asked))
        refuse_changes(out, *sections)
        if max_concurrent not in (None, limit):
            was = "without it" if limit is None else f"with {limit}"
            raise RunDirectoryError(
                f"--max-concurrent {max_concurrent}: {out} was begun {was}, and goes on like that"
            )
        return True
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, {**asked, "max_concurrent": max_concurrent})
    return False


def _param_space(sweep: Sweep) -> dict[str, Any]:
    space = {dimension.path: dimension.domain() for dimension in sweep.search.dimensions()}
    if sweep.search.searcher == "random":  # Optuna's trials are repeated instead
        first = sweep.experiment.seed
        space["seed"] = tune.grid_search(list(range(first, first + sweep.search.seeds)))
    return space


def _tune_config(sweep: Sweep, max_concurrent: int | None) -> tune.TuneConfig:
    search, metric = sweep.search, METRICS[sweep.search.metric]
    if search.searcher == "random":
        # The same draws for every seed.
        searcher: Any = BasicVariantGenerator(
            constant_grid_search=True,
            random_state=sweep.experiment.seed,
            max_concurrent=max_concurrent or 0,
        )
        samples = search.samples
    else:
        searcher = Repeater(_optuna(metric, sweep.experiment.seed), repeat=search.seeds)
        samples = search.samples * search.seeds
    return tune.TuneConfig(
        metric=metric,
        mode="max",
        search_alg=searcher,
        scheduler=_scheduler(sweep),
        num_samples=samples,
        max_concurrent_trials=max_concurrent,
        reuse_actors=True,  # a process takes seconds to load what a trial needs
        trial_dirname_creator=lambda trial: trial.trial_id,
    )


def _optuna(metric: str, seed: int) -> Any:
    if find_spec("optuna") is None:
        raise MissingExtraError(
            "search.searcher=optuna needs Optuna: pip install -c constraints.txt -e '.[tune]'"
        )
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return OptunaSearch(metric=metric, mode="max", seed=seed)


def _within(dimensions: list[Dimension], config: dict[str, Any]) -> dict[str, Any]:
    """What population based training proposes, kept within the space: it multiplies by 1.2."""
    own = {dimension.path: dimension.within(config[dimension.path]) for dimension in dimensions}
    return {**config, **own}


def _scheduler(sweep: Sweep) -> TrialScheduler | None:
    search, budget = sweep.search, sweep.experiment.stop.env_steps
    interval = max(1, int(search.patience * budget))
    if search.scheduler == "asha":
        return ASHAScheduler(
            time_attr="env_steps", max_t=budget, grace_period=interval, reduction_factor=2
        )
    if search.scheduler == "pbt":
        mutations = {
            dimension.path: list(dimension.values)
            if dimension.kind in ("grid", "choice")
            else dimension.domain()
            for dimension in search.dimensions()
        }
        return PopulationBasedTraining(
            time_attr="env_steps",
            perturbation_interval=interval,
            hyperparam_mutations=mutations,
            custom_explore_fn=partial(_within, search.dimensions()),
            require_attrs=False,
        )
    return None
