"""Shared by all tests: one local Ray per pytest session, small and without a dashboard.

With RISE_FUZZ=file.json, what the fuzzed properties were tried with is written to that file.
"""

from __future__ import annotations

import json
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


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if "RISE_FUZZ" not in os.environ:
        return
    passed = terminalreporter.stats.get("passed", [])
    found = [dict(report.user_properties).get("fuzz") for report in passed]
    properties = [entry for entry in found if entry is not None]
    Path(os.environ["RISE_FUZZ"]).write_text(json.dumps(properties, indent=1) + "\n")
