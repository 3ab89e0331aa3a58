"""A job's output as it comes, until it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import aiohttp
import requests
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from rllib_rise.errors import ClusterError

_PAUSE_SECONDS = 2.0
_PATIENCE_SECONDS = 300.0
_UNREACHABLE = (RuntimeError, OSError, aiohttp.ClientError, requests.exceptions.RequestException)


def follow(
    client: JobSubmissionClient,
    job_id: str,
    write: Callable[[str], None],
    *,
    patience: float = _PATIENCE_SECONDS,
) -> int:
    """Pass a job's output on until the job has ended; its exit code.

    Args:
        client: Of the job's cluster.
        job_id: Of the job.
        write: Called with pieces of the output.
        patience: Seconds without an answer of the cluster after which it is given up.
    """
    return asyncio.run(_follow(client, job_id, write, patience))


async def _follow(
    client: JobSubmissionClient, job_id: str, write: Callable[[str], None], patience: float
) -> int:
    seen, told, silent_since = 0, "", None
    while True:
        try:
            # Every connection tells the whole output again.
            async for piece in _behind(client.tail_job_logs(job_id), seen):
                seen, silent_since = seen + len(piece), None
                write(piece)
            details, silent_since = client.get_job_info(job_id), None
            message = "" if details.status == JobStatus.SUCCEEDED else details.message or ""
            if details.status != JobStatus.RUNNING and message not in ("", told):
                write(f"{details.status.value.lower()}: {message}\n")
                told = message
            if details.status.is_terminal():
                return _exit_code(details)
        except _UNREACHABLE as error:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > patience:
                raise ClusterError(
                    f"the cluster has not answered for {patience:.0f} seconds ({error}); the job "
                    "may still run: submit it again to follow it"
                ) from None
        await asyncio.sleep(_PAUSE_SECONDS)


async def _behind(pieces: AsyncIterator[str], seen: int) -> AsyncIterator[str]:
    async for piece in pieces:
        new = piece[seen:]
        seen = max(0, seen - len(piece))
        if new:
            yield new


def _exit_code(details: JobDetails) -> int:
    if details.status == JobStatus.SUCCEEDED:
        return 0
    return details.driver_exit_code or 1
