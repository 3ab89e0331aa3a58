"""What every encoder has in common, and how one is chosen by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from rllib_rise.errors import ConfigError

# Convolutions over a few images at a time stay in the CPU's cache; measured faster than one piece.
_IMAGES_PER_CHUNK = 32
ENCODERS = ("auto", "identity", "random", "vae")


class ImageLayout(NamedTuple):
    """Where an image shape keeps its rows, columns and channels."""

    height: int
    width: int
    channels: int
    channels_first: bool


def is_image(shape: Sequence[int]) -> bool:
    """Whether observations of this shape are images: those of three dimensions are."""
    return len(shape) == 3


def image_layout(shape: Sequence[int]) -> ImageLayout:
    """Read `[H, W, C]` or `[C, H, W]`.

    Channels come first if the first dimension is smaller than both others, as in the (4, 84, 84)
    of Atari's vector environments; in all other cases last, RLlib's convention.
    """
    first, second, third = shape
    if first < min(second, third):
        return ImageLayout(second, third, first, channels_first=True)
    return ImageLayout(first, second, third, channels_first=False)


def as_float(obs: Tensor) -> Tensor:
    """Observations as float32, bytes scaled to [0, 1]; no copy where they already are."""
    if obs.dtype == torch.uint8:
        return obs.float().div_(255.0)
    return obs.to(torch.float32)


class Encoder(nn.Module):
    """A map `[N, *obs_shape] -> [N, embedding_size]` without gradients, in evaluation mode.

    Subclasses implement `encode` for one chunk of float observations (images as `[n, C, H, W]`,
    all else as `[n, D]`).
    """

    kind: ClassVar[str]
    obs_shape: tuple[int, ...]
    embedding_size: int

    @property
    def ready(self) -> bool:
        """Whether observations can be embedded; encoders that learn have to be fitted first."""
        return True

    def encode(self, obs: Tensor) -> Tensor:
        """Embed one chunk of float observations."""
        raise NotImplementedError

    def frozen(self) -> Callable[[Tensor], Tensor]:
        """`encode` with the present weights, made ready for many chunks."""
        return self.encode

    @torch.no_grad()
    def forward(self, obs: Tensor) -> Tensor:
        """Embed all observations, chunk by chunk where they are images on a CPU."""
        encode = self.frozen()
        if not is_image(self.obs_shape) or obs.device.type != "cpu":
            return encode(self._prepare(obs))
        chunks = obs.split(_IMAGES_PER_CHUNK)
        return torch.cat([encode(self._prepare(chunk)) for chunk in chunks])

    def _prepare(self, obs: Tensor) -> Tensor:
        obs = as_float(obs)
        if not is_image(self.obs_shape):
            return obs.reshape(len(obs), math.prod(obs.shape[1:]))
        return obs if image_layout(self.obs_shape).channels_first else obs.movedim(-1, 1)

    def train(self, mode: bool = True) -> Encoder:
        """Stay in evaluation mode: an encoder whose statistics move gives drifting rewards."""
        super().train(False)
        return self


def make_encoder(
    name: str, obs_shape: Sequence[int], *, embedding_size: int, seed: int, **fit_options: Any
) -> Encoder:
    """Build the encoder called `name`; "auto" is the paper's: VAE for images, identity else.

    Args:
        name: One of `ENCODERS`.
        obs_shape: Shape of one observation.
        embedding_size: Dimension of the embedding; the identity has that of the observation.
        seed: Seed of the weights.
        fit_options: `epochs`, `lr`, `batch_size` of encoders that are fitted; others ignore them.
    """
    from rllib_rise.encoders.identity import IdentityEncoder
    from rllib_rise.encoders.random import RandomEncoder
    from rllib_rise.encoders.vae import VAEEncoder

    if name == "auto":
        name = "vae" if is_image(obs_shape) else "identity"
    if name == "identity":
        return IdentityEncoder(obs_shape)
    if name == "random":
        return RandomEncoder(obs_shape, embedding_size=embedding_size, seed=seed)
    if name == "vae":
        return VAEEncoder(obs_shape, embedding_size=embedding_size, seed=seed, **fit_options)
    raise ConfigError(f"encoder={name!r} is unknown; choose one of {', '.join(ENCODERS)}")
