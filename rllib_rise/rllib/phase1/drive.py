"""Phase 1 as the algorithm's process leads it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray

from rllib_rise.bonuses import FitReport
from rllib_rise.errors import RiseError
from rllib_rise.rllib.phase1 import fit as on_learner
from rllib_rise.rllib.phase1.cache import FitCache, versions
from rllib_rise.rllib.phase1.collect import collect, dismiss

logger = logging.getLogger(__name__)

OnProgress = Callable[[str], None]

# Observations travel in this many parts, so that there is never a second copy of them all.
_ROUNDS = 10
_MOST_ROUNDS = 3 * _ROUNDS
_ROUND_SECONDS = 1800.0
_DISMISS_SECONDS = 60.0


@dataclass
class Phase1Report:
    """What happened.

    Attributes:
        env_steps: Environment steps that the fit took, in this run or in the one it comes from.
        cached: Whether the fit comes from an earlier run.
        seconds: Where this run's time went.
        modules: What each module's bonus tells.
    """

    env_steps: int
    cached: bool
    seconds: dict[str, float] = field(default_factory=dict)
    modules: dict[str, FitReport] = field(default_factory=dict)


def run_phase1(
    algorithm: Any, *, cache_folder: str | None, filesystem: Any, on_progress: OnProgress
) -> Phase1Report | None:
    """Fit what is not fitted yet, on the first learner, and share it; None if nothing was.

    Whether anything is to be done is read from the learners, so a restored algorithm does not
    begin again.
    """
    learners = algorithm.learner_group
    pending = _ask_first(learners, on_learner.pending)
    if not pending:
        return None
    cache = _entry(algorithm.config, pending, cache_folder, filesystem)
    if cache is None:
        report = _collect_and_fit(algorithm, pending, None, on_progress)
    else:
        waiting = partial(on_progress, "waiting for another run that makes the same fit")
        with cache.lock(on_wait=waiting):
            report = _from_cache(algorithm, cache) or _collect_and_fit(
                algorithm, pending, cache, on_progress
            )
    if len(learners) > 1:
        started = time.perf_counter()
        _share(learners)
        report.seconds["share"] = time.perf_counter() - started
    return report


def pending_steps(algorithm: Any) -> int:
    """Environment steps that are still to be taken for Phase 1."""
    pending = _ask_first(algorithm.learner_group, on_learner.pending)
    return max((wish["steps"] for wish in pending.values()), default=0)


def warmup_steps(algorithm: Any) -> int:
    """Environment steps that Phase 1 took."""
    return _ask_first(algorithm.learner_group, on_learner.get_warmup_steps)


def _from_cache(algorithm: Any, cache: FitCache) -> Phase1Report | None:
    found = _ask_first(algorithm.learner_group, on_learner.adopt_cached, cache=cache)
    if found is None:
        return None
    env_steps, modules = found
    report = Phase1Report(env_steps, cached=True, modules=modules)
    _add_seconds(report, only=("search_k",))
    return report


def _collect_and_fit(
    algorithm: Any, pending: dict[str, Any], cache: FitCache | None, on_progress: OnProgress
) -> Phase1Report:
    learners = algorithm.learner_group
    steps = max(wish["steps"] for wish in pending.values())
    started = time.perf_counter()
    try:
        env_steps = _collect(algorithm, steps, on_progress)
        seconds = {"collect": time.perf_counter() - started}
        while (line := _ask_first(learners, on_learner.advance)) is not None:
            on_progress(line)
        modules = _ask_first(learners, on_learner.adopt, env_steps=env_steps, cache=cache)
    finally:
        _ask_first(learners, on_learner.abandon)
    report = Phase1Report(env_steps, cached=False, seconds=seconds, modules=modules)
    _add_seconds(report)
    return report


def _collect(algorithm: Any, steps: int, on_progress: OnProgress) -> int:
    """Take `steps` steps, a tenth at a time, and hand the observations to the first learner."""
    runners, learners = algorithm.env_runner_group, algorithm.learner_group
    local = algorithm.config.num_env_runners == 0
    taken, errors = 0, []
    try:
        for _ in range(_MOST_ROUNDS):
            if taken >= steps:
                return taken
            count = 1 if local else runners.num_healthy_remote_workers()
            if count == 0:
                break
            share = math.ceil(min(math.ceil(steps / _ROUNDS), steps - taken) / count)
            results = runners.foreach_env_runner(
                partial(collect, num_steps=share),
                local_env_runner=local,
                timeout_seconds=None if local else _ROUND_SECONDS,
            )
            errors += [result["error"] for result in results if "error" in result]
            if errors and len(errors) >= 3 * count:
                break
            parts = [result for result in results if result["steps"] > 0]
            lost = _ask_first(
                learners,
                on_learner.add_observations,
                capacity=steps,
                parts=[part["episodes"] for part in parts],
            )
            taken += sum(part["steps"] for i, part in enumerate(parts) if i not in lost)
            on_progress(f"collecting: {min(taken, steps):,} of {steps:,} steps")
    finally:
        # A runner that hangs must not hold up the rest.
        runners.foreach_env_runner(
            dismiss, local_env_runner=local, timeout_seconds=None if local else _DISMISS_SECONDS
        )
    reason = f": {errors[-1]}" if errors else ", or were lost"
    raise RiseError(
        f"Phase 1 got {taken:,} of {steps:,} steps (intrinsic.warmup_steps) from "
        f"{'the local env runner' if local else f'{algorithm.config.num_env_runners} env runners'}"
        f"; they failed{reason}"
    )


def _share(learners: Any) -> None:
    """Give the first learner's state to the others."""
    state = ray.put(_ask_first(learners, on_learner.get_intrinsic_state))
    others = learners._worker_manager.actor_ids()[1:]
    results = learners.foreach_learner(
        on_learner.set_intrinsic_state, remote_actor_ids=others, state=state
    )
    _values(results, len(others))


def _ask_first(learners: Any, function: Callable[..., Any], **kwargs: Any) -> Any:
    """Call a function on the first learner; raise what it returns or raises as an error."""
    first = None if learners.is_local else learners._worker_manager.actor_ids()[:1]
    results = learners.foreach_learner(function, remote_actor_ids=first, **kwargs)
    return _values(results, 1)[0]


def _values(results: Any, expected: int) -> list[Any]:
    values = []
    for result in results:
        value = result.get()
        if not result.ok or isinstance(value, Exception):
            raise value
        values.append(value)
    if len(values) != expected:
        raise RiseError("a learner was lost during Phase 1")
    return values


def _add_seconds(report: Phase1Report, only: tuple[str, ...] | None = None) -> None:
    """Sum the modules' seconds into the report's."""
    for module in report.modules.values():
        for name, value in module.figures.pop("seconds", {}).items():
            if only is None or name in only:
                report.seconds[name] = report.seconds.get(name, 0.0) + value


def _entry(
    config: Any, pending: dict[str, Any], folder: str | None, filesystem: Any
) -> FitCache | None:
    """The cache's entry for this run; None without a cache, or a seed to know the fit by."""
    if folder is None or config.seed is None:
        return None
    bonus_class, settings = config.intrinsic_method()
    spec = config.rl_module_spec
    key = {
        "env": config.env,
        "env_config": dict(config.env_config),
        "seed": config.seed,
        "env_runners": [config.num_env_runners, config.num_envs_per_env_runner],
        "connectors": [config._env_to_module_connector, config._learner_connector],
        "module": [getattr(spec, "module_class", None), config.model_config],
        "modules": pending,
        "method": bonus_class,
        "settings": bonus_class.fit_settings(settings),
        "versions": versions(),
    }
    return FitCache(folder, key, filesystem)
