"""Phase 1 as the algorithm's process leads it."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray

from rllib_rise.bonuses import FitReport
from rllib_rise.errors import LostProcessError, RiseError
from rllib_rise.rllib.phase1 import fit as on_learner
from rllib_rise.rllib.phase1.cache import FitCache
from rllib_rise.rllib.phase1.collect import collect, dismiss
from rllib_rise.rllib.phase1.digest import UndescribableError
from rllib_rise.rllib.phase1.key import fit_key

logger = logging.getLogger(__name__)

OnProgress = Callable[[str], None]

# Observations travel in this many parts, so that there is never a second copy of them all.
_ROUNDS = 10
_MOST_ROUNDS = 3 * _ROUNDS
# How many times the time for a batch of training a round may take.
_ROUND_TIMEOUTS = 10
_MOST_ERRORS = 3


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
    if pending is None:
        return None
    _check(algorithm.config, pending)
    cache = _entry(algorithm.config, pending, cache_folder, filesystem)
    if cache is None:
        report = _collect_and_fit(algorithm, pending.steps, None, on_progress)
    else:

        def waiting(seconds: float) -> None:
            on_progress(f"waiting for another run that makes the same fit ({seconds:.0f} s)")

        with cache.lock(on_wait=waiting):
            report = _from_cache(algorithm, cache) or _collect_and_fit(
                algorithm, pending.steps, cache, on_progress
            )
    if len(learners) > 1:
        started = time.perf_counter()
        _share(learners)
        report.seconds["share"] = time.perf_counter() - started
    return report


def pending_steps(algorithm: Any) -> int:
    """Environment steps that are still to be taken for Phase 1."""
    pending = _ask_first(algorithm.learner_group, on_learner.pending)
    return 0 if pending is None else pending.steps


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
    algorithm: Any, steps: int, cache: FitCache | None, on_progress: OnProgress
) -> Phase1Report:
    learners = algorithm.learner_group
    started = time.perf_counter()
    try:
        _ask_first(learners, on_learner.begin, capacity=steps)
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
    local, timeout = algorithm.config.num_env_runners == 0, algorithm.config.sample_timeout_s
    taken, errors, left_out = 0, list[tuple[int, str]](), set[int]()
    try:
        for round_number in range(_MOST_ROUNDS):
            if taken >= steps:
                return taken
            asked = [0] if local else sorted({*runners.healthy_env_runner_ids()} - left_out)
            if not asked or (local and left_out):
                break
            share = math.ceil(min(math.ceil(steps / _ROUNDS), steps - taken) / len(asked))
            results = runners.foreach_env_runner(
                partial(collect, num_steps=share, round_number=round_number),
                local_env_runner=local,
                remote_worker_ids=None if local else asked,
                timeout_seconds=None if local else _ROUND_TIMEOUTS * timeout,
            )
            # Silent once is enough: each further round would wait for the same time again.
            left_out |= {*asked} - {result["runner"] for result in results}
            errors += [(one["runner"], one["error"]) for one in results if "error" in one]
            failures = Counter(runner for runner, _ in errors)
            left_out |= {runner for runner, count in failures.items() if count >= _MOST_ERRORS}
            parts = [result for result in results if result["steps"] > 0]
            lost = _ask_first(
                learners,
                on_learner.add_observations,
                parts=[part["episodes"] for part in parts],
            )
            taken += sum(part["steps"] for i, part in enumerate(parts) if i not in lost)
            on_progress(f"collecting: {min(taken, steps):,} of {steps:,} steps")
    finally:
        # A runner that hangs must not hold up the rest.
        runners.foreach_env_runner(
            dismiss, local_env_runner=local, timeout_seconds=None if local else timeout
        )
    whose = "the local env runner" if local else f"{algorithm.config.num_env_runners} env runners"
    got = f"Phase 1 got {taken:,} of {steps:,} steps (intrinsic.warmup_steps) from {whose}"
    if errors:
        raise RiseError(f"{got}; environments failed: {errors[-1][1]}")
    raise LostProcessError(
        f"{got}, which were lost, or took more than {_ROUND_TIMEOUTS * timeout:g} s for a tenth of "
        f"them: environments hang, or rllib.sample_timeout_s={timeout:g} is too little"
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
        raise LostProcessError("a learner was lost during Phase 1")
    return values


def _add_seconds(report: Phase1Report, only: tuple[str, ...] | None = None) -> None:
    """Sum the modules' seconds into the report's."""
    for module in report.modules.values():
        for name, value in module.figures.pop("seconds", {}).items():
            if only is None or name in only:
                report.seconds[name] = report.seconds.get(name, 0.0) + value


def _check(config: Any, pending: on_learner.Pending) -> None:
    """Raise where the fit cannot succeed, before any step is taken for it."""
    bonus_class, settings = config.intrinsic_method()
    for shape in pending.shapes.values():
        bonus_class.fit_settings(settings, shape)


def _entry(
    config: Any, pending: on_learner.Pending, folder: str | None, filesystem: Any
) -> FitCache | None:
    """The cache's entry for this run; None without a cache or anything to know the fit by.

    That is a seed, and a state that nothing was restored into: connectors may hold what the policy
    has seen, and encoders what others fitted.
    """
    useful = config.seed is not None and pending.fresh and pending.steps > 0
    if folder is None or not useful:
        return None
    try:
        name = fit_key(config, shapes=pending.shapes, policy=pending.policy)
    except UndescribableError as error:
        logger.warning("the fit of Phase 1 is not cached: %s", error)
        return None
    return FitCache(folder, name, filesystem)
