"""Fits of Phase 1, kept for other runs.

An entry is one safetensors file, named after everything that the fit depends on (`key`). It is
written beside its place and renamed into it, so readers see all of it or nothing. Runs that want
the same fit at the same time wait for the first one, as far as the storage has locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs
import safetensors
import safetensors.torch

from rllib_rise.bonuses import Fit

logger = logging.getLogger(__name__)

CACHE_FOLDER = "phase1-cache"
"""The cache's usual name, beside the runs that may share it."""

_FORMAT = "3"
_POLL_SECONDS = 0.5
_TELL_SECONDS = 5.0


@dataclass(frozen=True)
class CachedFits:
    """An entry: a fit per module, and the environment steps it took."""

    fits: dict[str, Fit]
    env_steps: int


@dataclass(frozen=True)
class FitCache:
    """One entry of a cache.

    Attributes:
        folder: Where the cache is.
        name: Of the entry, see `fit_key`.
        filesystem: Of the folder; the local one if None.
    """

    folder: str
    name: str
    filesystem: pyarrow.fs.FileSystem | None = None

    def load(self) -> CachedFits | None:
        """The entry, or None; a damaged one counts as none."""
        filesystem, path = self._place(f"{self.name}.safetensors")
        try:
            if filesystem.get_file_info(path).type == pyarrow.fs.FileType.NotFound:
                return None
            with filesystem.open_input_stream(path) as stream:
                content = stream.read()
            return _unpack(content)
        except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
            logger.warning("the cached fit %s cannot be used and is made again: %s", path, error)
            return None

    def store(self, fits: dict[str, Fit], *, env_steps: int) -> None:
        """Write the entry. A run goes on without it where that fails."""
        filesystem, path = self._place(f"{self.name}.safetensors")
        partial = f"{path}.{uuid.uuid4().hex}.partial"
        try:
            filesystem.create_dir(os.path.dirname(path), recursive=True)
            with filesystem.open_output_stream(partial) as stream:
                stream.write(_pack(fits, env_steps))
            filesystem.move(partial, path)
        except OSError as error:
            logger.warning("the fit of Phase 1 could not be cached in %s: %s", path, error)

    @contextlib.contextmanager
    def lock(self, on_wait: Callable[[float], None] = lambda seconds: None) -> Iterator[None]:
        """Hold the entry against other processes; the system lets go when a process dies.

        Storage without locks (object stores) is left unlocked: there two runs may fit the same
        thing, and the last one's stays, which is as good as the first's.

        Args:
            on_wait: Called every few seconds with the time spent waiting.
        """
        filesystem, path = self._place(f"{self.name}.lock")
        if not isinstance(filesystem, pyarrow.fs.LocalFileSystem):
            yield
            return
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            stream = open(path, "w")  # noqa: SIM115 (an error of the block below is none of this)
        except OSError as error:
            logger.warning("the cache of fits cannot be locked: %s", error)
            yield
            return
        with stream:
            started, told = time.monotonic(), -math.inf
            while not _try_lock(stream):
                waited = time.monotonic() - started
                if waited >= told + _TELL_SECONDS:
                    on_wait(waited)
                    told = waited
                time.sleep(_POLL_SECONDS)
            yield

    def _place(self, name: str) -> tuple[pyarrow.fs.FileSystem, str]:
        if self.filesystem is not None:
            return self.filesystem, f"{self.folder}/{name}"
        if "://" in self.folder:
            filesystem, folder = pyarrow.fs.FileSystem.from_uri(self.folder)
            return filesystem, f"{folder}/{name}"
        return pyarrow.fs.LocalFileSystem(), f"{os.path.abspath(self.folder)}/{name}"


def _try_lock(stream: Any) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        logger.warning("the cache of fits cannot be locked here: %s", error)
    return True


def _pack(fits: dict[str, Fit], env_steps: int) -> bytes:
    tensors = {
        f"{module_id}/{name}": tensor.contiguous()
        for module_id, fit in fits.items()
        for name, tensor in fit.tensors.items()
    }
    infos = {module_id: fit.info for module_id, fit in fits.items()}
    metadata = {"format": _FORMAT, "env_steps": str(env_steps), "infos": json.dumps(infos)}
    return safetensors.torch.save(tensors, metadata)


def _unpack(content: bytes) -> CachedFits:
    tensors = safetensors.torch.load(content)
    header_size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + header_size])["__metadata__"]
    if metadata["format"] != _FORMAT:
        raise ValueError(f"its format is {metadata['format']}")
    fits = {}
    for module_id, info in json.loads(metadata["infos"]).items():
        own = {
            key.rpartition("/")[2]: tensor
            for key, tensor in tensors.items()
            if key.rpartition("/")[0] == module_id
        }
        fits[module_id] = Fit(own, info)
    return CachedFits(fits, int(metadata["env_steps"]))
