"""Small runs for the cluster, and how they are watched."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosts import Hosts

RUN: dict[str, Any] = {
    "env": {"id": "rise/Maze-v0", "size": 8, "max_steps": 50},
    "stop": {"env_steps": 6000},
    "rllib": {
        "num_env_runners": 2,
        "num_envs_per_env_runner": 4,
        "rollout_fragment_length": 32,
        "train_batch_size_per_learner": 256,
        "minibatch_size": 128,
        "num_epochs": 1,
        "num_learners": 1,
        "model_config": {"fcnet_hiddens": [16]},
        # One env runner per worker, the learner on the head.
        "custom_resources_per_env_runner": {"env_node": 1},
        "custom_resources_per_learner": {"learner_node": 1},
        "delay_between_env_runner_restarts_s": 1.0,
        "sample_timeout_s": 20.0,
    },
    "intrinsic": {
        "method": "rise",
        "encoder": "vae",
        "k": "auto",
        "warmup_steps": 512,
        "lambda_0": 0.1,
        "kappa": 1e-4,
    },
}
SWEEP: dict[str, Any] = {
    "env": RUN["env"],
    "stop": {"env_steps": 8000},
    "rllib": {
        **{key: RUN["rllib"][key] for key in ("minibatch_size", "num_epochs", "model_config")},
        "num_env_runners": 0,
        "num_envs_per_env_runner": 4,
        "train_batch_size_per_learner": 128,
        "custom_resources_for_main_process": {"env_node": 0.5},
    },
    "intrinsic": {"method": "rise", "k": 3},
    "search": {"space": {"alpha": {"grid": [0.1, 0.5]}}, "seeds": 2},
}
# What the operating system calls their processes.
ENV_RUNNER, LEARNER, DRIVER = "ray::ArrayEnvRunner", "ray::_WrappedExecutable", "rllib_rise.cli"
ENDLESS = "stop.env_steps=10000000"


@dataclass
class Submitted:
    """A run that was sent to the cluster, as its folder shows it."""

    hosts: Hosts
    folder: Path
    output: str

    @property
    def id(self) -> str:
        return next(line.split()[-1] for line in self.output.splitlines() if "submitted as" in line)

    def rows(self) -> list[dict[str, float]]:
        path = self.folder / "metrics.csv"
        if not path.exists():
            return []
        with path.open(newline="") as stream:
            found = list(csv.DictReader(stream))
        if found and None in found[-1].values():
            found.pop()  # being written
        return [{k: float(v) for k, v in row.items() if v} for row in found]

    def steps(self) -> float:
        rows = self.rows()
        return rows[-1]["env_steps"] if rows else 0.0

    def runners(self) -> float:
        rows = self.rows()
        return rows[-1]["env_runners"] if rows else 0.0

    def log(self) -> str:
        return self.hosts.log(self.id)

    def wait(self, condition: Callable[[], object], seconds: float = 120) -> float:
        """Seconds until something holds."""
        started = time.monotonic()
        while not condition():
            if time.monotonic() - started > seconds:
                raise AssertionError(f"waited {seconds} s in vain; the job says:\n{self.log()}")
            time.sleep(0.1)
        return time.monotonic() - started

    def stop(self) -> None:
        self.hosts.stop(self.id)
