"""Checkpoints on disk: whole or not there, and read only where they are what was written.

A checkpoint is written aside and put in place by one rename, when all of it is on the disk.
MANIFEST.json lists its files with sizes and digests. One that does not match is torn: by a disk,
by a copy that was interrupted, by a hand.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rllib_rise import __version__
from rllib_rise.errors import CheckpointError

logger = logging.getLogger(__name__)

MANIFEST = "MANIFEST.json"
_FORMAT = 1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ROOT = 0


def write_checkpoint(
    target: Path, write: Callable[[Path], None], *, iteration: int, env_steps: int
) -> None:
    """Call `write(folder)`, add the manifest, and rename the folder to `target`.

    Whatever goes wrong, the folder is removed and what was there before stays.

    Raises:
        CheckpointError: The disk is full, or does not take it for another reason.
    """
    partial = target.with_name(f".partial_{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        write(partial)
        manifest = {
            "format": _FORMAT,
            "rllib_rise": __version__,
            "iteration": iteration,
            "env_steps": env_steps,
            "files": {
                str(file.relative_to(partial)): _settle(file)
                for file in sorted(partial.rglob("*"))
                if file.is_file()
            },
        }
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        _settle(partial / MANIFEST)
        for folder in (*partial.rglob("*/"), partial):
            _sync_folder(folder)
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint {target} could not be written: {reason(error)}. Those before it are "
            f"whole: {remedy(error)}, then go on with --resume"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def verify(checkpoint: Path) -> None:
    """Raise a `CheckpointError` that says why, where a checkpoint is not what was written."""
    found = _flaw(checkpoint)
    if found is not None:
        raise CheckpointError(
            f"the checkpoint {checkpoint} is torn: {found}. Copy it again from where it is whole, "
            "or choose another one of the run; the run directory stands for its newest whole one"
        )


def newest_whole(folder: Path) -> Path | None:
    """The newest checkpoint in a folder that is not torn; None where there is none at all.

    Torn ones are skipped with a warning.

    Raises:
        CheckpointError: There are some, and all are torn.
    """
    torn = []
    for checkpoint in reversed(list_checkpoints(folder)):
        found = _flaw(checkpoint)
        if found is None:
            return checkpoint
        logger.warning("the checkpoint %s is torn and left out: %s", checkpoint, found)
        torn.append(f"{checkpoint.name} ({found})")
    if torn:
        raise CheckpointError(
            f"no checkpoint of {folder} is whole: {'; '.join(torn)}. Copy one again from where it "
            f"is whole, or delete {folder} to begin the run anew"
        )
    return None


def list_checkpoints(folder: Path) -> list[Path]:
    """Whole and torn ones, the oldest first."""
    return sorted(folder.glob("iteration_*"))


def warn_of_strangers(checkpoint: Path) -> None:
    """Warn where somebody else may have written a checkpoint: to open it runs code in it.

    What was downloaded belongs to whoever did it, so that silence says nothing.
    """
    if not hasattr(os, "getuid"):
        return
    for path in (*checkpoint.parents[:2], checkpoint, *checkpoint.rglob("*")):
        found = path.stat()
        if found.st_uid not in (os.getuid(), _ROOT):
            why = f"{path} belongs to the user {_user_name(found.st_uid)}"
        elif found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            why = f"every user may write to {path}"
        else:
            continue
        logger.warning(
            "%s: RLlib's part of a checkpoint is pickle, and opening it runs whatever code "
            "is in it, with your rights. Open only what you trust (SECURITY.md)",
            why,
        )
        return


def reason(error: OSError) -> str:
    """What the system says, without file names and numbers."""
    return os.strerror(error.errno) if error.errno else str(error)


def disk_is_full(error: OSError) -> bool:
    """Whether there was no room for what was written."""
    return error.errno in _FULL


def remedy(error: OSError) -> str:
    """What to do about a failed write."""
    return "make room" if disk_is_full(error) else "fix that"


def _settle(file: Path) -> dict[str, Any]:
    """Wait until a file is on the disk; what the manifest says of it."""
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())
        return {"size": os.fstat(stream.fileno()).st_size, "sha256": _digest(stream)}


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing for folders
            raise
    finally:
        os.close(descriptor)


def _digest(stream: Any) -> str:
    return hashlib.file_digest(stream, "sha256").hexdigest()


def _flaw(checkpoint: Path) -> str | None:
    """The first thing that is wrong with a checkpoint, or None."""
    try:
        return next(_flaws(checkpoint), None)
    except OSError as error:
        return f"it cannot be read ({error})"


def _flaws(checkpoint: Path) -> Iterator[str]:
    file = checkpoint / MANIFEST
    if not file.exists():
        yield f"it has no {MANIFEST}"
        return
    manifest = None
    with contextlib.suppress(ValueError):
        manifest = json.loads(file.read_bytes())
    if not isinstance(manifest, dict) or "format" not in manifest:
        yield f"its {MANIFEST} is cut off or changed"
        return
    if manifest["format"] != _FORMAT:
        yield f"it has the format {manifest['format']} of another version, this one reads {_FORMAT}"
        return
    files = manifest["files"]
    # Sizes first: they cost nothing, and tell most.
    for name, told in files.items():
        if not (checkpoint / name).is_file():
            yield f"{name} is missing"
        elif (size := (checkpoint / name).stat().st_size) != told["size"]:
            yield f"{name} has {size:,} bytes instead of {told['size']:,}"
    for name, told in files.items():
        with (checkpoint / name).open("rb") as stream:
            if _digest(stream) != told["sha256"]:
                yield f"the content of {name} has changed"


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
