"""What every encoder has in common, and how one is chosen by name."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rllib_rise.errors import ConfigError

# Convolutions over a few images at a time stay in the CPU's cache; measured faster than one piece.
_IMAGES_PER_CHUNK = 64
ENCODERS = ("auto", "identity", "random")


def is_image(shape: Sequence[int]) -> bool:
    """Whether observations of this shape are images, channels last (RLlib's convention)."""
    return len(shape) == 3


def as_float(obs: Tensor) -> Tensor:
    """Observations as float32, bytes scaled to [0, 1]; no copy where they already are."""
    if obs.dtype == torch.uint8:
        return obs.float().div_(255.0)
    return obs.to(torch.float32)


class Encoder(nn.Module):
    """A map `[N, *obs_shape] -> [N, embedding_size]` without gradients, in evaluation mode.

    Subclasses implement `encode` for one chunk of float observations (images as `[n, C, H, W]`).
    """

    obs_shape: tuple[int, ...]
    embedding_size: int

    def encode(self, obs: Tensor) -> Tensor:
        """Embed one chunk of float observations."""
        raise NotImplementedError

    @torch.no_grad()
    def forward(self, obs: Tensor) -> Tensor:
        """Embed all observations, chunk by chunk where they are images on a CPU."""
        if not is_image(self.obs_shape) or obs.device.type != "cpu":
            return self.encode(self._prepare(obs))
        chunks = obs.split(_IMAGES_PER_CHUNK)
        return torch.cat([self.encode(self._prepare(chunk)) for chunk in chunks])

    def _prepare(self, obs: Tensor) -> Tensor:
        obs = as_float(obs)
        return obs.movedim(-1, 1) if is_image(self.obs_shape) else obs.reshape(len(obs), -1)

    def train(self, mode: bool = True) -> Encoder:
        """Stay in evaluation mode: an encoder whose statistics move gives drifting rewards."""
        super().train(False)
        return self


def make_encoder(name: str, obs_shape: Sequence[int], *, embedding_size: int, seed: int) -> Encoder:
    """Build the encoder called `name`; "auto" means random for images and identity for vectors."""
    from rllib_rise.encoders.identity import IdentityEncoder
    from rllib_rise.encoders.random import RandomEncoder

    if name == "auto":
        name = "random" if is_image(obs_shape) else "identity"
    if name == "identity":
        return IdentityEncoder(obs_shape)
    if name == "random":
        return RandomEncoder(obs_shape, embedding_size=embedding_size, seed=seed)
    raise ConfigError(f"encoder={name!r} is unknown; choose one of {', '.join(ENCODERS)}")
