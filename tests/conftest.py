"""Shared by all tests: one local Ray per pytest session, small and without a dashboard.

With RISE_RELIABILITY=file.json, what tests say of faults, fuzzing and resuming is written to that
file. Those that fail are taken out of it, those that do not run stay as they were: `pytest --lf`
completes it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

RELIABILITY = "RISE_RELIABILITY"
# What several tests use.
COMMON = str(Path(__file__).parent / "common")
sys.path.insert(0, COMMON)
# What is tested is this tree, whatever else is installed; and workers find the environments here.
PATHS = os.pathsep.join([str(Path(__file__).parent.parent), COMMON])
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
    if RELIABILITY not in os.environ:
        return
    from rllib_rise.experiments.run.run_directory import versions

    file, machine = Path(os.environ[RELIABILITY]), versions()
    told = {"date": date.today().isoformat(), "commit": machine.pop("commit")}
    before = json.loads(file.read_text()) if file.exists() else {}
    # What another machine or other versions gave is not this one's.
    tests = before["tests"] if before.get("machine") == machine else {}
    for outcome in ("failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            tests.pop(report.nodeid, None)
    for report in terminalreporter.stats.get("passed", []):
        if report.user_properties:
            tests[report.nodeid] = {**told, **dict(report.user_properties)}
    found = {"machine": machine, "tests": dict(sorted(tests.items()))}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n")
