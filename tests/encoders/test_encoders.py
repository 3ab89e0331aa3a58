from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rllib_rise.encoders import (
    Encoder,
    IdentityEncoder,
    RandomEncoder,
    VAEEncoder,
    image_layout,
    make_encoder,
)
from rllib_rise.errors import ConfigError


def frames(count: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    numbers = np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)
    return torch.from_numpy(numbers)


def embedded_by_hand(encoder: Encoder, images: Tensor) -> Tensor:
    channels_first = np.ascontiguousarray(images.numpy().transpose(0, 3, 1, 2))
    x = torch.from_numpy(channels_first / np.float32(255))
    for layer in encoder.modules():
        if isinstance(layer, nn.Conv2d):
            x = functional.conv2d(x, layer.weight, layer.bias, stride=2, padding=1).relu()
        elif isinstance(layer, nn.Linear):
            x = functional.linear(x.flatten(1), layer.weight, layer.bias)
    return x


@pytest.mark.parametrize(
    ("shape", "convolutions"),
    [
        ((84, 84, 4), 4),
        ((7, 40, 3), 2),
        ((5, 5, 3), 2),
        ((5, 9, 3), 2),
        ((3, 3, 2), 1),
        ((2, 2, 1), 0),
        ((9, 2, 3), 0),
        ((1, 1, 1), 0),
    ],
)
def test_images_of_every_size_are_convolved_channels_first_and_scaled(
    shape: tuple[int, ...], convolutions: int
):
    encoder, images = RandomEncoder(shape, embedding_size=7, seed=3), frames(6, shape)
    layers = [layer for layer in encoder.modules() if isinstance(layer, nn.Conv2d)]
    embeddings = encoder(images)
    assert len(layers) == convolutions
    assert embeddings.shape == (6, 7)
    assert embeddings.std(0).min() > 0
    torch.testing.assert_close(embeddings, embedded_by_hand(encoder, images))


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((84, 84, 4), (84, 84, 4, False)),
        ((4, 84, 84), (84, 84, 4, True)),
        ((3, 210, 160), (210, 160, 3, True)),
        ((210, 160, 3), (210, 160, 3, False)),
        ((7, 7, 3), (7, 7, 3, False)),
        ((5, 9, 1), (5, 9, 1, False)),
        ((4, 4, 4), (4, 4, 4, False)),
        ((3, 3, 5), (3, 3, 5, False)),
    ],
)
def test_channels_come_first_only_where_they_are_the_smallest(
    shape: tuple[int, ...], layout: tuple[int, int, int, bool]
):
    assert image_layout(shape) == layout


def test_channels_first_images_are_embedded_as_their_channels_last_twins():
    images = frames(70, (12, 10, 3))
    last = RandomEncoder((12, 10, 3), embedding_size=5, seed=0)
    first = RandomEncoder((3, 12, 10), embedding_size=5, seed=0)
    torch.testing.assert_close(first(images.movedim(-1, 1).contiguous()), last(images))


def test_images_in_chunks_are_embedded_as_in_one_piece():
    encoder, images = RandomEncoder((12, 10, 3), embedding_size=5, seed=0), frames(150, (12, 10, 3))
    embeddings = encoder(images)
    assert embeddings.shape == (150, 5)
    torch.testing.assert_close(embeddings, embedded_by_hand(encoder, images))


def test_vectors_pass_two_dense_layers():
    encoder = RandomEncoder((2, 3), embedding_size=4, seed=0)
    obs = torch.randn(200, 2, 3, generator=torch.Generator().manual_seed(0))
    first, second = (layer for layer in encoder.modules() if isinstance(layer, nn.Linear))
    hidden = np.maximum(
        obs.reshape(200, 6).numpy() @ first.weight.numpy().T + first.bias.numpy(), 0
    )
    expected = hidden @ second.weight.numpy().T + second.bias.numpy()
    np.testing.assert_allclose(encoder(obs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(6,), (12, 12, 3)])
def test_weights_follow_the_seed_and_nothing_else(shape: tuple[int, ...]):
    torch.manual_seed(1)
    one = RandomEncoder(shape, embedding_size=8, seed=5).state_dict()
    torch.manual_seed(2)
    same = RandomEncoder(shape, embedding_size=8, seed=5).state_dict()
    other = RandomEncoder(shape, embedding_size=8, seed=6).state_dict()
    for key, value in one.items():
        assert torch.equal(value, same[key]), key
        assert not torch.allclose(value, other[key]), key


@pytest.mark.parametrize("shape", [(6,), (12, 12, 3)])
def test_building_an_encoder_leaves_the_global_random_stream_alone(shape: tuple[int, ...]):
    before = torch.get_rng_state()
    RandomEncoder(shape, embedding_size=8, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


class Normalising(Encoder):
    obs_shape, embedding_size = (4,), 4

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.eval()

    def encode(self, obs: Tensor) -> Tensor:
        return self.norm(obs)


def test_embeddings_do_not_drift_when_a_parent_is_put_in_training_mode():
    encoder, obs = Normalising(), torch.arange(20.0).reshape(5, 4)
    parent = nn.Sequential(encoder).train()
    assert parent.training
    assert not any(module.training for module in encoder.modules())
    # A fresh BatchNorm in evaluation mode: (x - 0) / sqrt(1 + 1e-5).
    np.testing.assert_allclose(encoder(obs), obs / np.sqrt(1 + 1e-5), rtol=1e-6)
    np.testing.assert_allclose(encoder(obs), obs / np.sqrt(1 + 1e-5), rtol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (8, 8, 3)])
def test_random_encoders_are_frozen(shape: tuple[int, ...]):
    encoder = RandomEncoder(shape, embedding_size=3, seed=0)
    assert not any(module.training for module in encoder.train().modules())
    assert not any(weight.requires_grad for weight in encoder.parameters())
    obs = torch.ones(2, *shape, requires_grad=True)
    assert not encoder(obs).requires_grad


def test_identity_flattens_floats_unchanged():
    obs = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(0)) * 300
    encoder = IdentityEncoder((2, 3))
    assert encoder.embedding_size == 6
    assert encoder(obs).dtype == torch.float32
    assert encoder(obs).tolist() == obs.reshape(9, 6).tolist()


def test_bytes_are_scaled_to_the_unit_interval_and_other_integers_are_not():
    encoder = IdentityEncoder((3,))
    pixels = torch.tensor([[0, 51, 255]], dtype=torch.uint8)
    np.testing.assert_allclose(encoder(pixels), [[0.0, 0.2, 1.0]], rtol=1e-6)
    assert encoder(pixels.long()).tolist() == [[0.0, 51.0, 255.0]]
    assert pixels.tolist() == [[0, 51, 255]]


def test_identity_keeps_the_distances_between_images():
    images = frames(10, (4, 3, 2))
    embeddings = IdentityEncoder((4, 3, 2))(images)
    flat = images.reshape(10, 24).numpy() / 255
    expected = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    assert embeddings.shape == (10, 24)
    np.testing.assert_allclose(torch.cdist(embeddings, embeddings), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "chosen"),
    [
        ((), IdentityEncoder),
        ((4,), IdentityEncoder),
        ((4, 4), IdentityEncoder),
        ((84, 84, 4), VAEEncoder),
        ((4, 84, 84), VAEEncoder),
        ((2, 4, 4, 3), IdentityEncoder),
    ],
)
def test_auto_is_a_vae_for_images_and_identity_for_all_else(
    shape: tuple[int, ...], chosen: type[Encoder]
):
    assert type(make_encoder("auto", shape, embedding_size=16, seed=0)) is chosen


def test_encoders_are_chosen_by_name_whatever_the_shape():
    images, vectors = (8, 8, 3), (4,)
    assert isinstance(make_encoder("identity", images, embedding_size=5, seed=0), IdentityEncoder)
    encoder = make_encoder("random", vectors, embedding_size=5, seed=7)
    obs = torch.ones(3, 4)
    assert torch.equal(encoder(obs), RandomEncoder(vectors, embedding_size=5, seed=7)(obs))


def test_options_of_the_fit_reach_the_encoder_that_is_fitted():
    options = {"epochs": 3, "lr": 0.5, "batch_size": 7}
    encoder = make_encoder("vae", (4,), embedding_size=5, seed=2, **options)
    assert isinstance(encoder, VAEEncoder)
    assert (encoder.epochs, encoder.lr, encoder.batch_size, encoder.seed) == (3, 0.5, 7, 2)
    assert not encoder.ready
    assert make_encoder("random", (4,), embedding_size=5, seed=0, **options).ready


def test_unknown_encoders_and_sizes_are_refused():
    with pytest.raises(ConfigError, match=r"'randon'.*auto, identity, random, vae"):
        make_encoder("randon", (4,), embedding_size=5, seed=0)
    with pytest.raises(ConfigError, match="embedding_size=0"):
        make_encoder("random", (4,), embedding_size=0, seed=0)
