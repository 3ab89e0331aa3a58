"""A random, frozen network, as in RE3 (Seo et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from rllib_rise.encoders.base import Encoder, image_layout, is_image
from rllib_rise.errors import ConfigError

_CONV_LAYERS = 4
_CHANNELS = 32
_HIDDEN = 256


def conv_trunk(channels: int, height: int, width: int) -> tuple[nn.Sequential, int]:
    """Up to four 3x3 convolutions with stride 2 and their flat output size.

    84 -> 42 -> 21 -> 11 -> 6, padded by 1 so that every pixel is seen by some output. Small images
    get fewer layers: each needs at least 3 x 3 pixels.
    """
    layers: list[nn.Module] = []
    for _ in range(_CONV_LAYERS):
        if min(height, width) < 3:
            break
        layers += [nn.Conv2d(channels, _CHANNELS, 3, stride=2, padding=1), nn.ReLU()]
        channels, height, width = _CHANNELS, (height + 1) // 2, (width + 1) // 2
    return nn.Sequential(*layers, nn.Flatten()), channels * height * width


class RandomEncoder(Encoder):
    """Convolutions for images, two dense layers for vectors; orthogonal weights, never trained.

    The weights come from a generator of their own, so that every learner draws the same ones from
    the same seed and no other random stream is disturbed.
    """

    kind = "random"

    def __init__(self, obs_shape: Sequence[int], *, embedding_size: int, seed: int) -> None:
        super().__init__()
        if embedding_size < 1:
            raise ConfigError(f"embedding_size={embedding_size} must be at least 1")
        self.obs_shape = tuple(obs_shape)
        self.embedding_size = embedding_size
        # Layers draw default weights from the global stream when they are made.
        with torch.random.fork_rng(devices=[]):
            self.net = _network(self.obs_shape, embedding_size)
        generator = torch.Generator().manual_seed(seed)
        for layer in self.net.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(layer.weight, gain=math.sqrt(2), generator=generator)
                nn.init.uniform_(cast(Tensor, layer.bias), -0.1, 0.1, generator=generator)
        self.requires_grad_(False)
        self.eval()

    def encode(self, obs: Tensor) -> Tensor:
        """Embed one chunk."""
        return self.net(obs)


def _network(obs_shape: tuple[int, ...], embedding_size: int) -> nn.Sequential:
    if is_image(obs_shape):
        height, width, channels, _ = image_layout(obs_shape)
        trunk, size = conv_trunk(channels, height, width)
        return nn.Sequential(trunk, nn.Linear(size, embedding_size))
    size = max(1, math.prod(obs_shape))
    return nn.Sequential(nn.Linear(size, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, embedding_size))
