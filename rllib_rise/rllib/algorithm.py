"""The mixin that gives an RLlib algorithm its Phase 1."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ray.rllib.execution.rollout_ops import synchronous_parallel_sample
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS
from ray.tune.result import SHOULD_CHECKPOINT

from rllib_rise.rllib.phase1 import Phase1Report, pending_steps, run_phase1, warmup_steps
from rllib_rise.rllib.phase1.cache import CACHE_FOLDER


def _print_progress(line: str) -> None:
    print(f"Phase 1: {line}", file=sys.stderr, flush=True)


class IntrinsicAlgorithmMixin:
    """Use as `class X(IntrinsicAlgorithmMixin, SomeAlgorithm)`."""

    config: Any
    #: What Phase 1 did, where it ran in this process.
    phase1: Phase1Report | None = None
    _phase1_done = False

    def prepare_intrinsic(
        self, on_progress: Callable[[str], None] = _print_progress
    ) -> Phase1Report | None:
        """Run Phase 1, if the learners' state says that it has not been run.

        `train()` does it by itself; call it to save a checkpoint between, or for the progress.

        Args:
            on_progress: Called with a line of text now and then; by default they are printed to
                stderr. It may raise to interrupt.

        Returns:
            A report, or None where there was nothing to do.
        """
        if self._phase1_done or not self.config.uses_bonus:
            return None
        folder, filesystem = self._cache_place()
        report = run_phase1(
            self, cache_folder=folder, filesystem=filesystem, on_progress=on_progress
        )
        self._phase1_done = True
        self.phase1 = report or self.phase1
        return report

    def pending_warmup_steps(self) -> int:
        """Environment steps that Phase 1 will take; 0 where there is none, or it has run."""
        return pending_steps(self) if self.config.uses_bonus else 0

    def warmup_env_steps(self) -> int:
        """Environment steps that Phase 1 took. RLlib's counters do not have them."""
        return warmup_steps(self) if self.config.uses_bonus else 0

    def _cache_place(self) -> tuple[str | None, Any]:
        """Where fits are kept: as configured, else with Tune's experiment, else nowhere."""
        if self.config.intrinsic_cache is not None:
            return self.config.intrinsic_cache, None
        storage = getattr(self, "_storage", None)
        if storage is None:
            return None, None
        return f"{storage.experiment_fs_path}/{CACHE_FOLDER}", storage.storage_filesystem

    def training_step(self) -> Any:
        """Phase 1 before the first one; without a policy to learn, sampling alone."""
        if self.config.acts_at_random:
            return self._act_at_random()
        self.prepare_intrinsic()
        return super().training_step()  # type: ignore[misc]

    def _act_at_random(self) -> None:
        """A batch of steps with actions drawn from the action space."""
        _, results = synchronous_parallel_sample(
            worker_set=self.env_runner_group,  # type: ignore[attr-defined]
            max_env_steps=self.config.total_train_batch_size,
            sample_timeout_s=self.config.sample_timeout_s,
            random_actions=True,
            _uses_new_env_runners=True,
            _return_metrics=True,
        )
        self.metrics.aggregate(results, key=ENV_RUNNER_RESULTS)  # type: ignore[attr-defined]

    def step(self) -> dict[str, Any]:
        """One iteration; Tune saves a checkpoint behind the one in which Phase 1 ran."""
        before = self.phase1
        result = super().step()  # type: ignore[misc]
        if self.phase1 is not before:
            result[SHOULD_CHECKPOINT] = True
        return result

    def set_state(self, state: Any) -> None:
        """Restore; the learners' new state says whether Phase 1 is still to be run."""
        self._phase1_done = False
        super().set_state(state)  # type: ignore[misc]

    def restore_from_path(self, *args: Any, **kwargs: Any) -> None:
        """Restore; the learners' new state says whether Phase 1 is still to be run."""
        self._phase1_done = False
        super().restore_from_path(*args, **kwargs)  # type: ignore[misc]

    def add_module(self, *args: Any, **kwargs: Any) -> Any:
        """Add a module, whose bonus may want a Phase 1 of its own."""
        self._phase1_done = False
        return super().add_module(*args, **kwargs)  # type: ignore[misc]

    def remove_module(self, *args: Any, **kwargs: Any) -> Any:
        """Remove a module; others may be trained from now on."""
        self._phase1_done = False
        return super().remove_module(*args, **kwargs)  # type: ignore[misc]
