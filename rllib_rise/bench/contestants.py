"""Trainings in processes of their own, which do an iteration when they are told to.

In one process the memory that one of them keeps, and the threads that it starts, would serve the
others too.
"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from rllib_rise.errors import RiseError

OURS, OURS_PROFILED, STABLE_BASELINES = "ours", "ours, profiled", "stable-baselines3"

_START_SECONDS = 900.0
_ITERATION_SECONDS = 600.0
_WARM_UP = 1  # and one more, which `in_turn` does not keep


@dataclass(frozen=True)
class Entry:
    """What a contestant trains.

    Attributes:
        task: `Atari` or `Hopper`.
        trainer: `OURS`, `OURS_PROFILED` or `STABLE_BASELINES`.
        changes: Settings other than the config's, by dotted paths.
        keeps_memory: Whether our learners may tune what becomes of freed memory.
    """

    task: str
    trainer: str = OURS
    changes: Mapping[str, Any] | None = None
    keeps_memory: bool = True


class Contestant:
    """One of them, seen from the process that measures."""

    def __init__(self, entry: Entry, *, threads: int, ray_address: str) -> None:
        context = get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(other, entry, threads, ray_address), daemon=False
        )
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = str(threads)  # read when the child loads its libraries
        try:
            self._process.start()
        finally:
            if before is None:
                del os.environ["OMP_NUM_THREADS"]
            else:
                os.environ["OMP_NUM_THREADS"] = before
        other.close()
        try:
            self.started: dict[str, Any] = self._receive(_START_SECONDS)
        except BaseException:
            self.close()
            raise

    def iterate(self) -> None:
        """Let it sample a batch and learn from it."""
        self._connection.send("iterate")
        self._receive(_ITERATION_SECONDS)

    def figures(self) -> dict[str, Any]:
        """What it says of its last iteration, and its memory."""
        self._connection.send("figures")
        return self._receive(_ITERATION_SECONDS)

    def close(self) -> None:
        """End its process."""
        with suppress(BrokenPipeError, OSError):
            self._connection.send("close")
        self._process.join(timeout=60)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()

    def _receive(self, seconds: float) -> Any:
        if not self._connection.poll(seconds):
            raise RiseError(f"a benchmark's process has not answered for {seconds:.0f} s")
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RiseError("a benchmark's process has died; see its output above") from None
        if isinstance(answer, str):
            raise RiseError(f"a benchmark's process failed: {answer}")
        return answer


@contextmanager
def contest(entries: Mapping[str, Entry], *, threads: int) -> Iterator[dict[str, Contestant]]:
    """All of them, started one after the other and warmed up; Ray must run."""
    import ray

    address = ray.get_runtime_context().gcs_address
    with ExitStack() as stack:
        contestants = {}
        for name, entry in entries.items():
            one = Contestant(entry, threads=threads, ray_address=address)
            stack.callback(one.close)
            contestants[name] = one
            for _ in range(_WARM_UP):
                one.iterate()
        yield contestants


def _serve(connection: Connection, entry: Entry, threads: int, ray_address: str) -> None:
    """The child: build the trainer, then do as told until the parent is gone."""
    import torch

    from rllib_rise.experiments.session import ray_session, silence_rllib

    torch.set_num_threads(threads)
    silence_rllib()
    logging.getLogger("ray").setLevel(logging.ERROR)
    if not entry.keeps_memory:
        os.environ["MALLOC_"] = "tuned by nobody"  # any variable of this kind
    with_ray = entry.trainer != STABLE_BASELINES
    try:
        with ray_session(address=ray_address) if with_ray else nullcontext():
            _train_as_told(connection, entry)
    except (EOFError, KeyboardInterrupt):
        return
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def _train_as_told(connection: Connection, entry: Entry) -> None:
    from rllib_rise.bench.trainers import make_trainer

    trainer = make_trainer(entry.task, entry.trainer, dict(entry.changes or {}))
    connection.send(trainer.started)
    while (told := connection.recv()) != "close":
        if told == "iterate":
            trainer.iterate()
            connection.send({})
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            connection.send({**trainer.figures(), "peak_megabytes": peak})
    trainer.close()
