"""Shared by all tests: one local Ray per pytest session, small and without a dashboard."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
# What is tested is this tree, whatever else is installed; and workers find the environments here.
PATHS = os.pathsep.join([str(Path(__file__).parent.parent), HERE])
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    import ray

    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": PATHS}},
    )
    yield
    ray.shutdown()


@pytest.fixture
def build() -> Iterator[Callable[[Any], Any]]:
    """Builds algorithms; those with actors one at a time, for there are few cores."""
    built: list[Any] = []

    def build_one(config: Any) -> Any:
        if config.num_env_runners or config.num_learners:
            while built:
                built.pop().stop()
        built.append(config.build_algo())
        return built[-1]

    yield build_one
    while built:
        built.pop().stop()
