"""One cluster for all tests here, and small runs to be sent to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_runs import RUN, SWEEP, Submitted
from hosts import Hosts, missing

from rllib_rise.experiments.run.run_directory import versions, write_json

_FAULTS = "RISE_FAULTS"  # a file to write what was measured into


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    made = Hosts(tmp_path_factory.mktemp("cluster"))
    try:
        made.up(workers=2)
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session")
def project(hosts: Hosts) -> Path:
    """A user's directory on the client."""
    folder = hosts.folder / "project"
    folder.mkdir()
    (folder / "run.yaml").write_text(yaml.safe_dump(RUN))
    (folder / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    return folder


@pytest.fixture(autouse=True)
def nothing_left_running(hosts: Hosts) -> Iterator[None]:
    """Every test has the whole cluster, with two workers."""
    hosts.repair()
    yield
    hosts.stop_jobs()


@pytest.fixture
def submit(hosts: Hosts, project: Path) -> Callable[..., Submitted]:
    """Sends run.yaml."""

    def send(seed: int, *arguments: str) -> Submitted:
        done = hosts.rise(
            *("submit", "run.yaml", "--address", hosts.address, "--seed", str(seed)),
            *("--storage", str(hosts.storage), "--checkpoint-every", "4", *arguments),
            folder=project,
        )
        return Submitted(hosts, hosts.storage / f"run-rise-seed{seed}", done.stdout)

    return send


@pytest.fixture(scope="session")
def record() -> Iterator[Callable[..., None]]:
    """Keeps what a fault cost, for the table in cluster/README.md (python docs/faults.py)."""
    faults: list[dict[str, Any]] = []

    def keep(fault: str, *, seconds: float, steps_lost: float) -> None:
        faults.append({"fault": fault, "seconds": round(seconds, 1), "steps_lost": int(steps_lost)})

    yield keep
    if os.environ.get(_FAULTS):
        data = {"date": date.today().isoformat(), **versions(), "faults": faults}
        write_json(Path(os.environ[_FAULTS]), data)
