"""Starting Ray for a command, quietly, and ending it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import ray

from rllib_rise.errors import ClusterError
from rllib_rise.experiments.shared_storage import check_shared

_TRIES = 3
# What Ray's server keeps of calls of actors, for its dashboard: by default 100,000, some kilobytes
# each, so that it would grow for long.
_TASKS_REMEMBERED = 10_000


def silence_rllib() -> None:
    """Keep RLlib from greeting every algorithm with warnings about its own API stack."""
    import ray.rllib  # noqa: F401 (its import sets the level that is set here)

    logging.getLogger("ray.rllib").setLevel(logging.ERROR)


def _start(num_cpus: int) -> None:
    """Start Ray here. It gives itself 30 s, which a busy machine may not have: so several times."""
    for tries_left in reversed(range(_TRIES)):
        try:
            ray.init(
                num_cpus=num_cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
            return
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            ray.shutdown()
            if not tries_left:
                raise ClusterError(
                    f"Ray did not start on this machine within 30 s, {_TRIES} times: it has too "
                    "much to do, or too little memory"
                ) from error


@contextlib.contextmanager
def ray_session(
    *, cpus: int | None = None, address: str | None = None, folder: Path | None = None
) -> Iterator[None]:
    """Ray for the duration of a command: a local instance, or the cluster at `address`.

    A Ray that the process has started already is used and left running.

    Args:
        cpus: That the command needs.
        address: Of a running cluster.
        folder: Where the command will write; all nodes of a cluster must see it.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_task_events_max_num_task_in_gcs", str(_TASKS_REMEMBERED))
    if address is not None:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    else:
        # More than there are only makes processes share cores; fewer would make them wait.
        _start(max(cpus or 1, os.cpu_count() or 1))
    try:
        if address is not None and folder is not None:
            check_shared(folder)
        yield
    finally:
        ray.shutdown()
