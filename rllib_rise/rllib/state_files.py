"""The intrinsic state as files: plain data in JSON, tensors in safetensors, no pickle."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pyarrow.fs
import safetensors.torch

from rllib_rise.errors import ConfigError

_JSON = "state.json"
_TENSORS = "state.safetensors"


def write_state(
    state: Mapping[str, Any],
    path: str | pathlib.Path | None,
    filesystem: pyarrow.fs.FileSystem | None,
) -> str:
    """Write a state, whose `tensors` are those of a dict, into a folder; returns the folder."""
    filesystem, folder = _folder(path, filesystem)
    filesystem.create_dir(folder, recursive=True)
    plain = dict(state)
    tensors = {key: value.contiguous() for key, value in plain.pop("tensors").items()}
    with filesystem.open_output_stream(f"{folder}/{_TENSORS}") as stream:
        stream.write(safetensors.torch.save(tensors))
    with filesystem.open_output_stream(f"{folder}/{_JSON}") as stream:
        stream.write(json.dumps(plain, indent=2).encode())
    return folder


def read_state(
    path: str | pathlib.Path, filesystem: pyarrow.fs.FileSystem | None
) -> dict[str, Any]:
    """Read what `write_state` wrote."""
    filesystem, folder = _folder(path, filesystem)
    with filesystem.open_input_stream(f"{folder}/{_JSON}") as stream:
        state = json.loads(stream.read())
    with filesystem.open_input_stream(f"{folder}/{_TENSORS}") as stream:
        state["tensors"] = safetensors.torch.load(stream.read())
    return state


def _folder(
    path: str | pathlib.Path | None, filesystem: pyarrow.fs.FileSystem | None
) -> tuple[pyarrow.fs.FileSystem, str]:
    if path is None:
        raise ConfigError("path: say where to save the intrinsic state")
    folder = path if isinstance(path, str) else path.as_posix()
    if filesystem is None:
        filesystem, folder = pyarrow.fs.FileSystem.from_uri(folder)
    return filesystem, folder
