"""A run that learns from recorded episodes, so that a resumed one can be compared with it."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import ray
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from rllib_rise.experiments.run.run_directory import RunDirectory
from rllib_rise.experiments.run.training import Training
from rllib_rise.experiments.schema import Experiment, parse_experiment

BATCH = 64


def experiment(settings: dict[str, Any]) -> Experiment:
    return parse_experiment(
        {
            "env": {"id": "rise/Maze-v0", "size": 7, "layout": "loops", "max_steps": 25},
            "seed": 5,
            "stop": {"env_steps": 100_000},
            "rllib": {
                "num_env_runners": 0,
                "num_envs_per_env_runner": 2,
                "train_batch_size_per_learner": BATCH,
                "minibatch_size": BATCH // 2,
                "num_epochs": 1,
                "model_config": {"fcnet_hiddens": [8]},
            },
            "intrinsic": settings,
        }
    )


class Rehearsal:
    """A run whose episodes are given to it."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        what = experiment(settings)
        self.run = RunDirectory(folder)
        self.training = Training(what, self.run, events=False)
        self.run.open(what.resolved())
        self.algorithm = self.training._algorithm
        self.learner = self.algorithm.learner_group._learner

    def sample(self, *, anew: bool = False) -> list[Any]:
        runner = self.algorithm.env_runner
        return runner.sample(num_timesteps=BATCH, explore=True, force_reset=anew)

    def learn(self, number: int, episodes: list[Any]) -> None:
        """The update with a number, from 1 on."""
        self.algorithm.learner_group.update(
            episodes=copy.deepcopy(episodes),
            timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: number * BATCH},
            num_epochs=1,
            minibatch_size=BATCH // 2,
            shuffle_batch_per_epoch=True,
        )
        self.training.progress.iteration = number
        self.training.progress.env_steps = number * BATCH

    def save(self) -> None:
        progress = self.training.progress
        self.run.add_checkpoint(
            progress.iteration, self.training.write, env_steps=progress.env_steps, keep=1
        )

    def bonus(self, number: int, episodes: list[Any]) -> torch.Tensor:
        """What an update with these episodes would add to the rewards."""
        given: list[torch.Tensor] = []
        add = self.learner.intrinsic._add

        def keep(module_id: str, batch: Any, *rest: Any) -> None:
            before = batch[Columns.REWARDS].clone()
            add(module_id, batch, *rest)
            given.append(batch[Columns.REWARDS] - before)

        self.learner.intrinsic._add = keep
        self.learn(number, episodes)
        (found,) = given
        return found

    def outcome(self, number: int, episodes: list[Any]) -> dict[str, Any]:
        """All of the intrinsic state, lambda, and the bonus of one batch more."""
        state = self.learner.intrinsic.get_state()
        weight = self.learner.intrinsic.intrinsic_lambda
        return {"state": state, "lambda": weight, "bonus": self.bonus(number, episodes)}


def resume(cases: dict[str, tuple[dict[str, Any], Path, int, list[Any]]]) -> dict[str, Any]:
    """In a process of its own: go on with the runs, each from its checkpoint."""
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    torch.set_num_threads(1)
    outcomes = {}
    for name, (settings, folder, interrupted, batches) in cases.items():
        rehearsal = Rehearsal(settings, folder)
        rehearsal.training.restore(rehearsal.run.latest_checkpoint())
        assert rehearsal.training.progress.iteration == interrupted
        *rest, last = batches[interrupted:]
        for number, episodes in enumerate(rest, start=interrupted + 1):
            rehearsal.learn(number, episodes)
        outcomes[name] = rehearsal.outcome(len(batches), last)
        rehearsal.training.close()
    ray.shutdown()
    return outcomes
