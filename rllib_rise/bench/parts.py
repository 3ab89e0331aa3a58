"""The parts of an algorithm's iteration, measured where they are called."""

from __future__ import annotations

import time
from typing import Any

from ray.rllib.connectors.learner import GeneralAdvantageEstimation

# Each with those that are contained in it, whose time is not its own.
_CONTAINED = {
    "sampling: environments": (),
    "sampling: the rest": ("sampling: environments",),
    "batch: bonus": (),
    "batch: values and advantages": (),
    "batch: the rest": ("batch: bonus", "batch: values and advantages"),
    "minibatches: forward and loss": (),
    "minibatches: backward": (),
    "minibatches: optimizer": (),
    "minibatches: the rest": (
        "batch: the rest",
        "minibatches: forward and loss",
        "minibatches: backward",
        "minibatches: optimizer",
    ),
}


class Parts:
    """Measures the parts of an algorithm's iterations."""

    def __init__(self, algorithm: Any) -> None:
        self._whole: dict[str, float] = dict.fromkeys(_CONTAINED, 0.0)
        runner, learner = algorithm.env_runner, algorithm.learner_group._learner
        self._watch(runner, "sample", "sampling: the rest")
        self._watch(runner.env, "step", "sampling: environments")
        self._watch(learner, "update", "minibatches: the rest")
        self._watch(learner, "_make_batch_if_necessary", "batch: the rest")
        self._watch(learner.intrinsic, "apply_all", "batch: bonus")
        self._watch(learner.module, "forward_train", "minibatches: forward and loss")
        self._watch(learner, "compute_losses", "minibatches: forward and loss")
        self._watch(learner, "compute_gradients", "minibatches: backward")
        self._watch(learner, "postprocess_gradients", "minibatches: optimizer")
        self._watch(learner, "apply_gradients", "minibatches: optimizer")
        # Python looks `__call__` up in the class.
        for piece in learner._learner_connector.connectors:
            if isinstance(piece, GeneralAdvantageEstimation):
                self._watch(type(piece), "__call__", "batch: values and advantages")

    def take(self) -> dict[str, float]:
        """Seconds since the last time, by part, each without what is contained in it."""
        whole, self._whole = self._whole, dict.fromkeys(_CONTAINED, 0.0)
        return {
            part: whole[part] - sum(whole[other] for other in contained)
            for part, contained in _CONTAINED.items()
        }

    def _watch(self, owner: Any, name: str, part: str) -> None:
        call = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self._whole[part] += time.perf_counter() - began

        setattr(owner, name, watched)
