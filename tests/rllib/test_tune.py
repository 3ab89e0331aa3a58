"""Tune from Python: any callback, Tune's own loggers, TensorBoard."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from phase1_helpers import config
from ray import tune
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.tune.logger import LoggerCallback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytestmark = pytest.mark.usefixtures("ray_cluster")
BONUS = f"learners/{DEFAULT_MODULE_ID}/intrinsic_reward_mean"
ITERATIONS = 2


class Collected(LoggerCallback):
    """Keeps what W&B's and MLflow's callbacks, which are of this kind, would send away."""

    def __init__(self) -> None:
        self.begun: dict[str, float] = {}
        self.bonuses: dict[str, list[float]] = {}
        self.ended: set[str] = set()

    def log_trial_start(self, trial: Any) -> None:
        self.begun[trial.trial_id] = trial.config["intrinsic_settings"]["alpha"]

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        learner = result["learners"][DEFAULT_MODULE_ID]
        self.bonuses.setdefault(trial.trial_id, []).append(learner["intrinsic_reward_mean"])

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        assert not failed
        self.ended.add(trial.trial_id)


def test_callbacks_see_settings_and_bonuses_and_tensorboard_has_them(tmp_path: Path):
    collected = Collected()
    tuner = tune.Tuner(
        "RISE-PPO",
        param_space=config().rise(alpha=tune.grid_search([0.1, 0.6])),
        run_config=tune.RunConfig(
            name="alpha",
            storage_path=str(tmp_path),
            stop={"training_iteration": ITERATIONS},
            callbacks=[collected],
            verbose=0,
        ),
    )
    results = tuner.fit()
    assert not results.errors
    assert sorted(collected.begun.values()) == [0.1, 0.6]
    assert collected.ended == set(collected.begun)
    for result in results:
        told = collected.bonuses[result.metrics["trial_id"]]
        assert len(told) == ITERATIONS
        events = EventAccumulator(result.path).Reload()
        drawn = [event.value for event in events.Scalars(f"ray/tune/{BONUS}")]
        assert drawn == pytest.approx(told)
        with (Path(result.path) / "progress.csv").open(newline="") as stream:
            assert [float(row[BONUS]) for row in csv.DictReader(stream)] == pytest.approx(told)
