"""What the learned bonuses feed their networks with, and those networks."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.encoders.base import as_float, image_layout, is_image
from rllib_rise.encoders.random import conv_trunk

_CLIP = 5.0
_HIDDEN = 256
_EPSILON = 1e-8
_ROWS = 256


class Whitening(nn.Module):
    """Brings each feature to mean 0 and deviation 1 by running moments, and clips it to [-5, 5].

    Images come out as `[N, C, H, W]`, all else as `[N, D]`.
    """

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.obs_shape = obs_shape
        self.seen = RunningMoments((max(1, math.prod(obs_shape)),))

    def moments(self, obs: Tensor) -> RunningMoments:
        """Those of what was seen; before anything was, the batch's own."""
        if self.seen.count > 0:
            return self.seen
        own = RunningMoments(tuple(self.seen.mean.shape)).to(obs.device)
        take_in(own, obs)
        return own

    def update(self, obs: Tensor) -> None:
        """Take a batch into the moments."""
        take_in(self.seen, obs)

    def forward(self, obs: Tensor, moments: RunningMoments | None = None) -> Tensor:
        """The whitened observations, by the given moments or by those of all that was seen."""
        moments = moments or self.seen
        mean, std = moments.mean.float(), moments.std.float()
        x = ((flat(obs) - mean) / (std + _EPSILON)).clamp(-_CLIP, _CLIP)
        if not is_image(self.obs_shape):
            return x
        images = x.reshape(len(obs), *self.obs_shape)
        return images if image_layout(self.obs_shape).channels_first else images.movedim(-1, 1)


def take_in(moments: RunningMoments, obs: Tensor) -> None:
    """Update moments per feature, a part at a time: moments are taken in float64."""
    for chunk in obs.split(_ROWS):
        moments.update(flat(chunk))


def flat(obs: Tensor) -> Tensor:
    """Observations as `[N, D]` floats, bytes scaled to [0, 1]."""
    return as_float(obs).reshape(len(obs), math.prod(obs.shape[1:]))


def network(
    obs_shape: tuple[int, ...], size: int, *, hidden_layers: int, generator: torch.Generator
) -> nn.Sequential:
    """Convolutions for images, a dense layer for vectors; then dense layers down to `size`."""
    layers: list[nn.Module]
    # Layers draw default weights from the global stream when they are made.
    with torch.random.fork_rng(devices=[]):
        if is_image(obs_shape):
            height, width, channels, _ = image_layout(obs_shape)
            trunk, width_in = conv_trunk(channels, height, width)
            layers = [trunk]
        else:
            layers = [nn.Linear(max(1, math.prod(obs_shape)), _HIDDEN), nn.ReLU()]
            width_in = _HIDDEN
        layers.append(dense(width_in, size, hidden_layers=hidden_layers, generator=generator))
    return initialised(nn.Sequential(*layers), generator)


def dense(
    size_in: int, size: int, *, hidden_layers: int, generator: torch.Generator
) -> nn.Sequential:
    """Dense layers of 256 with ReLU, and one without down to `size`."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        for _ in range(hidden_layers):
            layers += [nn.Linear(size_in, _HIDDEN), nn.ReLU()]
            size_in = _HIDDEN
        layers.append(nn.Linear(size_in, size))
    return initialised(nn.Sequential(*layers), generator)


def initialised(net: nn.Sequential, generator: torch.Generator) -> nn.Sequential:
    """Orthogonal weights from a generator of their own, biases 0."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(layer.weight, gain=math.sqrt(2), generator=generator)
            nn.init.zeros_(cast(Tensor, layer.bias))
    return net
