"""Shared by all tests: one local Ray per pytest session, small and without a dashboard."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    import ray

    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        # So that workers find the environments of the tests.
        runtime_env={"env_vars": {"PYTHONPATH": HERE}},
    )
    yield
    ray.shutdown()
