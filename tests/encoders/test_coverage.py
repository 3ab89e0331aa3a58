"""No part of an image is outside of every receptive field."""

from __future__ import annotations

import pytest
import torch

from rllib_rise.encoders.random import conv_trunk
from rllib_rise.encoders.vae_networks import conv_encoder


@pytest.mark.parametrize("side", [5, 7, 42, 64, 84, 96])
@pytest.mark.parametrize("trunk", ["random", "vae"])
def test_every_pixel_is_seen(trunk: str, side: int):
    net, size = (
        conv_trunk(1, side, side + 3) if trunk == "random" else conv_encoder(side, side + 3, 1)
    )
    for layer in net.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.constant_(layer.weight, 1.0)
            if layer.bias is not None:
                torch.nn.init.zeros_(layer.bias)
    image = torch.ones(1, 1, side, side + 3, requires_grad=True)
    output = net.eval()(image)
    assert output.shape == (1, size)
    output.sum().backward()
    assert image.grad is not None
    assert (image.grad > 0).all()
