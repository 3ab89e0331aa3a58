"""The two halves of a variational autoencoder, for images of any size and for vectors."""

from __future__ import annotations

from typing import cast

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

_CONV_LAYERS = 4
_ENCODER_CHANNELS = 32
_DECODER_CHANNELS = (64, 64, 32, 16)
_DECODER_HIDDEN = 64
_MLP_HIDDEN = (32, 64)


def image_sizes(height: int, width: int) -> list[tuple[int, int]]:
    """Sizes before and after each 3x3 convolution of stride 2, as long as 3 x 3 pixels are left.

    With a padding of 1 a side s becomes (s + 1) // 2: 84, 42, 21, 11, 6. Without (the paper: 84,
    41, 20, 9, 4) a layer leaves out the last row and column of an even side, and over the layers
    that adds up to a margin of the image which no output sees: 5 pixels of 84, 11 of 42.
    """
    sizes = [(height, width)]
    while len(sizes) <= _CONV_LAYERS and min(sizes[-1]) >= 3:
        height, width = sizes[-1]
        sizes.append(((height + 1) // 2, (width + 1) // 2))
    return sizes


def conv_encoder(height: int, width: int, channels: int) -> tuple[nn.Sequential, int]:
    """The paper's encoder up to its heads, and its flat output size."""
    sizes = image_sizes(height, width)
    layers: list[nn.Module] = []
    for _ in sizes[1:]:
        # Batch normalisation subtracts the mean, and a bias with it.
        layers += [nn.Conv2d(channels, _ENCODER_CHANNELS, 3, stride=2, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(_ENCODER_CHANNELS), nn.ReLU()]
        channels = _ENCODER_CHANNELS
    return nn.Sequential(*layers, nn.Flatten()), channels * sizes[-1][0] * sizes[-1][1]


def without_normalisation(network: nn.Sequential) -> nn.Sequential:
    """The same map with each frozen batch normalisation folded into the convolution before it.

    Normalising is a pass over memory of its own, as long as a third of a small convolution.
    """
    layers: list[nn.Module] = []
    for layer in network:
        if isinstance(layer, nn.BatchNorm2d):
            layers[-1] = fuse_conv_bn_eval(cast(nn.Conv2d, layers[-1]), layer)
        else:
            layers.append(nn.ReLU(inplace=True) if isinstance(layer, nn.ReLU) else layer)
    return nn.Sequential(*layers)


def conv_decoder(embedding_size: int, height: int, width: int, channels: int) -> nn.Sequential:
    """Two dense layers, then the encoder's convolutions backwards, the last to the channels.

    A side s comes back as 2s - 1, plus an output padding of 1 where it was even. Departures from
    the paper: its last deconvolution is 8x8 (39 -> 84), while mirroring the encoder fits every
    image size; no ReLU follows it and a 1x1 convolution does, two linear maps which are one here;
    and the channels halve from layer to layer (the paper: 64, 64, 64, 32), because nearly all time
    of a fit is spent in the last layers.
    """
    sizes = image_sizes(height, width)[::-1]
    widths = (*_DECODER_CHANNELS[: len(sizes) - 1], channels)
    layers: list[nn.Module] = [
        nn.Linear(embedding_size, _DECODER_HIDDEN),
        nn.ReLU(),
        nn.Linear(_DECODER_HIDDEN, widths[0] * sizes[0][0] * sizes[0][1]),
        nn.Unflatten(1, (widths[0], *sizes[0])),
    ]
    for i in range(len(sizes) - 1):
        small, large = sizes[i], sizes[i + 1]
        extra = (large[0] - 2 * small[0] + 1, large[1] - 2 * small[1] + 1)
        layers += [
            nn.ReLU(),
            nn.ConvTranspose2d(
                widths[i], widths[i + 1], 3, stride=2, padding=1, output_padding=extra
            ),
        ]
    return nn.Sequential(*layers)


def mlp_encoder(size: int) -> tuple[nn.Sequential, int]:
    """Dense layers up to the heads, and their output size."""
    first, second = _MLP_HIDDEN
    net = nn.Sequential(nn.Linear(size, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh())
    return net, second


def mlp_decoder(embedding_size: int, size: int) -> nn.Sequential:
    """The dense encoder backwards."""
    first, second = _MLP_HIDDEN
    return nn.Sequential(
        nn.Linear(embedding_size, second),
        nn.Tanh(),
        nn.Linear(second, first),
        nn.Tanh(),
        nn.Linear(first, size),
    )
