"""Encoders on disk: safetensors, with what is needed to build the encoder again as metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from rllib_rise.encoders.base import Encoder, make_encoder
from rllib_rise.errors import ConfigError, RiseError

_FORMAT = "rllib_rise encoder"
ENCODER_VERSION = 2
"""Of the file and of the networks in it: to be raised with every change of either."""


def save_encoder(encoder: Encoder, path: str | Path) -> None:
    """Write an encoder that is ready to embed."""
    Path(path).write_bytes(encoder_to_bytes(encoder))


def encoder_to_bytes(encoder: Encoder) -> bytes:
    """The content of an encoder's file."""
    if not encoder.ready:
        raise RiseError("an encoder that is not fitted is not worth saving")
    metadata = {
        "format": _FORMAT,
        "version": str(ENCODER_VERSION),
        "kind": encoder.kind,
        "obs_shape": json.dumps(encoder.obs_shape),
        "embedding_size": str(encoder.embedding_size),
    }
    tensors = {key: value.contiguous() for key, value in encoder.state_dict().items()}
    return save(tensors, metadata)


def load_encoder(path: str | Path, obs_shape: Sequence[int]) -> Encoder:
    """Read an encoder for observations of this shape.

    Raises:
        ConfigError: If the file is missing, is no encoder, or is one of other observations.
    """
    setting = f"intrinsic.encoder_file={str(path)!r}"
    if not Path(path).is_file():
        raise ConfigError(
            f"{setting} does not exist: name an encoder.safetensors that a run left, or a file "
            "that save_encoder wrote"
        )
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{setting} cannot be read as an encoder: {error}") from error
    if metadata.get("format") != _FORMAT:
        raise ConfigError(f"{setting} is a safetensors file, but holds no encoder of rllib_rise")
    version = metadata.get("version", "unknown")
    if version != str(ENCODER_VERSION):
        raise ConfigError(
            f"{setting} has format version {version}, this release reads {ENCODER_VERSION}: "
            "fit the encoder anew, or use the release that wrote it"
        )
    try:
        kind, size = metadata["kind"], int(metadata["embedding_size"])
        saved_shape = tuple(json.loads(metadata["obs_shape"]))
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{setting} is damaged: its metadata lacks {error}") from error
    if saved_shape != tuple(obs_shape):
        raise ConfigError(
            f"{setting} was fitted to observations of shape {saved_shape}, the environment gives "
            f"{tuple(obs_shape)}: name a file that fits, or leave encoder_file out"
        )
    encoder = make_encoder(kind, obs_shape, embedding_size=size, seed=0)
    try:
        encoder.load_state_dict(tensors)
    except RuntimeError as error:
        raise ConfigError(f"{setting} is damaged: {error}") from error
    return encoder
