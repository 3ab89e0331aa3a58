from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rllib_rise.encoders import FitProgress, NotFittedError, VAEEncoder
from rllib_rise.encoders.vae_networks import conv_decoder, conv_encoder, image_sizes
from rllib_rise.errors import ConfigError, NonFiniteError, RiseError

SHAPES = [
    (84, 84, 4),
    (64, 64, 3),
    (96, 96, 3),
    (7, 7, 3),
    (210, 160, 3),
    (5, 9, 1),
    (9, 5, 1),
    (3, 3, 1),
    (2, 2, 1),
    (1, 1, 1),
]


def moving_square(count: int, height: int, width: int, channels: int) -> tuple[Tensor, Tensor]:
    """Bytes `[N, H, W, C]`: a white square on one noisy background; its corners `[N, 2]`."""
    generator = torch.Generator().manual_seed(0)
    shape = (height, width, channels)
    background = torch.randint(0, 100, shape, generator=generator, dtype=torch.uint8)
    side = max(2, min(height, width) // 4)
    top = torch.randint(0, height - side + 1, (count, 1, 1), generator=generator)
    left = torch.randint(0, width - side + 1, (count, 1, 1), generator=generator)
    row, column = torch.arange(height)[None, :, None], torch.arange(width)[None, None]
    inside = (row >= top) & (row < top + side) & (column >= left) & (column < left + side)
    images = background.repeat(count, 1, 1, 1)
    images[inside] = 255
    return images, torch.cat([top, left], 1).squeeze(2).double()


def linear_r2(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> list[float]:
    """R2 per column of least squares with an intercept, on data that it was not fitted to."""
    (x, y), (new_x, new_y) = train, test
    x, new_x = (nn.functional.pad(part.double(), (0, 1), value=1.0) for part in (x, new_x))
    guess = new_x @ torch.linalg.lstsq(x, y).solution
    return (1 - (guess - new_y).square().sum(0) / (new_y - new_y.mean(0)).square().sum(0)).tolist()


def fitted(obs: Tensor, **options: int | float) -> VAEEncoder:
    options = {"embedding_size": 16, "batch_size": 16, "epochs": 4, "lr": 3e-3} | options
    encoder = VAEEncoder(obs.shape[1:], **options)
    for _ in encoder.fit(obs):
        pass
    return encoder


@pytest.fixture(scope="module")
def small() -> tuple[VAEEncoder, Tensor, Tensor]:
    """An encoder of 16 x 16 images, the images and the places of their squares."""
    images, places = moving_square(640, 16, 16, 2)
    return fitted(images[:512], epochs=10), images, places


@pytest.mark.parametrize("shape", SHAPES)
def test_every_image_size_comes_back(shape: tuple[int, int, int]):
    height, width, channels = shape
    trunk, features = conv_encoder(*shape)
    flat = trunk.eval()(torch.zeros(2, channels, height, width))
    assert flat.shape == (2, features)
    decoded = conv_decoder(6, *shape)(torch.zeros(2, 6))
    assert decoded.shape == (2, channels, height, width)


def test_the_papers_layers():
    assert image_sizes(84, 84) == [(84, 84), (42, 42), (21, 21), (11, 11), (6, 6)]
    trunk, features = conv_encoder(84, 84, 4)
    convolutions = [layer for layer in trunk if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [32] * 4
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in trunk) == 4
    assert features == 32 * 6 * 6


@pytest.mark.parametrize(
    ("shape", "epochs", "dtype", "channels_first"),
    [
        ((84, 84, 1), 3, torch.uint8, False),
        ((84, 84, 1), 3, torch.float32, True),
        ((64, 64, 3), 6, torch.uint8, True),
        ((96, 96, 1), 3, torch.float32, False),
        ((7, 7, 3), 6, torch.uint8, False),
        ((7, 7, 3), 6, torch.float64, True),
    ],
)
def test_reconstructions_beat_the_mean_image(
    shape: tuple[int, int, int], epochs: int, dtype: torch.dtype, channels_first: bool
):
    images, _ = moving_square(256, *shape)
    if channels_first:
        images = images.movedim(-1, 1)
    if dtype.is_floating_point:
        images = images.to(dtype) / 255
    train, test = images[:192], images[192:]
    encoder = fitted(train, epochs=epochs, batch_size=12)
    decoded = encoder.reconstruct(test)
    assert decoded.shape == test.shape
    assert decoded.dtype == test.dtype
    error = (decoded.float() - test.float()).square().mean()
    error_of_mean = (train.float().mean(0) - test.float()).square().mean()
    assert error < 0.95 * error_of_mean


def test_the_place_of_the_square_is_decodable(small: tuple[VAEEncoder, Tensor, Tensor]):
    encoder, images, places = small
    embedded = encoder(images)
    scores = linear_r2((embedded[:512], places[:512]), (embedded[512:], places[512:]))
    assert min(scores) > 0.8
    assert int((embedded.var(0) > 1e-2).sum()) >= 2


def test_reconstructions_know_the_place_of_the_square(small: tuple[VAEEncoder, Tensor, Tensor]):
    encoder, images, _ = small
    error = (encoder.reconstruct(images[512:]).float() - images[512:].float()).square().mean()
    error_of_mean = (images[:512].float().mean(0) - images[512:].float()).square().mean()
    assert error < 0.5 * error_of_mean


def test_channels_first_is_the_same_map(small: tuple[VAEEncoder, Tensor, Tensor]):
    encoder, images, _ = small
    other = VAEEncoder((2, 16, 16), embedding_size=16)
    other.load_state_dict(encoder.state_dict())
    turned = images[:70].movedim(-1, 1).contiguous()
    torch.testing.assert_close(other(turned), encoder(images[:70]))
    assert torch.equal(other.reconstruct(turned).movedim(1, -1), encoder.reconstruct(images[:70]))


def test_floats_in_the_unit_interval_are_embedded_as_their_bytes(
    small: tuple[VAEEncoder, Tensor, Tensor],
):
    encoder, images, _ = small
    torch.testing.assert_close(encoder(images[:9].float() / 255), encoder(images[:9]))


def test_an_embedding_does_not_depend_on_its_batch(small: tuple[VAEEncoder, Tensor, Tensor]):
    encoder, images, _ = small
    nn.Sequential(encoder).train()
    alone = torch.cat([encoder(image[None]) for image in images[:5]])
    torch.testing.assert_close(encoder(images)[:5], alone, rtol=1e-4, atol=1e-5)
    assert torch.equal(encoder(images), encoder(images))


def test_chunks_are_embedded_as_one_piece(small: tuple[VAEEncoder, Tensor, Tensor]):
    encoder, images, _ = small
    with torch.no_grad():
        whole = encoder.encode(images.float().div(255).movedim(-1, 1))
    torch.testing.assert_close(encoder(images), whole, rtol=1e-4, atol=1e-5)


def test_the_embedding_is_the_posterior_mean_by_hand(small: tuple[VAEEncoder, Tensor, Tensor]):
    encoder, images, _ = small
    # The centre is the mean of the data it was fitted to, the scale of bytes is 1.
    center = images[:512].numpy().astype(np.float64).mean(0) / 255
    x = torch.from_numpy(images[:4].numpy() / 255 - center).movedim(-1, 1)
    layers = list(encoder.trunk)
    for convolution, norm in zip(layers[0:-1:3], layers[1:-1:3], strict=True):
        x = nn.functional.conv2d(x, convolution.weight.double(), stride=2, padding=1)
        mean, variance = norm.running_mean.double(), norm.running_var.double()
        x = (x - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
        x = x * norm.weight.double()[:, None, None] + norm.bias.double()[:, None, None]
        x = x.relu()
    expected = x.flatten(1) @ encoder.mean.weight.double().T + encoder.mean.bias.double()
    torch.testing.assert_close(encoder(images[:4]).double(), expected, rtol=1e-3, atol=1e-4)


def test_the_decoder_does_not_run_at_reward_time(small: tuple[VAEEncoder, Tensor, Tensor]):
    encoder, images, _ = small
    calls = []
    hook = encoder.decoder.register_forward_hook(lambda *_: calls.append(1))
    encoder(images[:3])
    assert not calls
    encoder.reconstruct(images[:3])
    hook.remove()
    assert calls


def test_a_fitted_encoder_is_frozen(small: tuple[VAEEncoder, Tensor, Tensor]):
    encoder, images, _ = small
    assert encoder.ready
    assert encoder.fitted.dtype == torch.bool
    assert not any(weight.requires_grad for weight in encoder.parameters())
    assert not any(module.training for module in encoder.modules())
    assert not encoder(images[:2]).requires_grad


def test_history_tells_the_fit(small: tuple[VAEEncoder, Tensor, Tensor]):
    history = small[0].history
    assert [progress.epoch for progress in history] == list(range(1, len(history) + 1))
    assert history[-1].train_loss < history[0].train_loss
    for progress in history:
        assert progress.heldout_loss == pytest.approx(progress.reconstruction + progress.kl)
        assert progress.kl > 0
    with pytest.raises(FrozenInstanceError):
        history[0].kl = 0.0


def test_losses_are_those_of_the_formula():
    encoder = VAEEncoder((9, 9, 1), embedding_size=3)
    with torch.no_grad():
        for head in (encoder.mean, encoder.log_variance):
            head.weight.zero_()
        encoder.mean.bias.copy_(torch.tensor([1.0, -2.0, 0.0]))
        encoder.log_variance.bias.copy_(torch.tensor([0.0, 0.5, -1.0]))
        for weight in encoder.decoder.parameters():
            weight.zero_()
    obs = torch.full((4, 9, 9, 1), 0.25)
    errors = encoder.errors(obs, torch.Generator().manual_seed(0))
    # The decoder gives 0: MSE = 1/16. KL = sum (mu^2 + s^2 - 1 - log s^2) / 2.
    torch.testing.assert_close(errors.squared, torch.full((4,), 0.0625))
    expected = 0.5 * (1.0 + (4 + np.exp(0.5) - 1 - 0.5) + (np.exp(-1.0) - 1 + 1))
    torch.testing.assert_close(errors.kl, torch.full((4,), expected, dtype=torch.float32))
    torch.testing.assert_close(errors.latents, torch.tensor([[1.0, -2.0, 0.0]]).expand(4, 3))
    nats = 81 / 2 * np.log(0.0625 + 1 / (12 * 255**2))
    assert float(encoder.loss(errors)) == pytest.approx(nats + expected)
    # Of each observation, with the variance of the batch, up to log sigma: all are equal here.
    surprise = encoder.surprise(errors).tolist()
    assert surprise == pytest.approx([40.5 + expected] * 4, rel=1e-3)


@pytest.mark.parametrize("shape", [(6,), (9, 9, 1)])
def test_the_same_seed_and_data_give_the_same_weights_whatever_else_is_drawn(
    shape: tuple[int, ...],
):
    obs = torch.rand(80, *shape, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(1)
    one = fitted(obs, seed=5, epochs=2).state_dict()
    torch.manual_seed(2)
    same = fitted(obs, seed=5, epochs=2).state_dict()
    other = fitted(obs, seed=6, epochs=2).state_dict()
    assert all(torch.equal(value, same[key]) for key, value in one.items())
    for key in ("mean.weight", "log_variance.weight", "trunk.0.weight"):
        assert not torch.allclose(one[key], other[key]), key


def test_the_global_random_stream_and_gradient_mode_are_left_alone():
    obs = torch.rand(80, 9, 9, 1, generator=torch.Generator().manual_seed(3))
    before = torch.get_rng_state()
    encoder = VAEEncoder((9, 9, 1), embedding_size=4, epochs=2)
    with torch.no_grad():
        for _ in encoder.fit(obs):
            assert not torch.is_grad_enabled()
            assert not any(module.training for module in encoder.modules())
    assert torch.equal(torch.get_rng_state(), before)


def test_the_best_epoch_is_kept_and_a_fit_that_gets_worse_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
):
    obs = torch.rand(80, 4, generator=torch.Generator().manual_seed(3))
    losses = iter([5.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    weights: list[Tensor] = []

    def evaluate(encoder: VAEEncoder, obs: Tensor, rows: Tensor) -> tuple[float, float]:
        weights.append(encoder.mean.weight.detach().clone())
        return next(losses), 0.0

    monkeypatch.setattr(VAEEncoder, "_evaluate", evaluate)
    encoder = fitted(obs, epochs=7)
    assert [progress.heldout_loss for progress in encoder.history] == [5.0, 2.0, 3.0, 4.0, 5.0]
    assert torch.equal(encoder.mean.weight, weights[1])
    assert not torch.equal(weights[1], weights[4])


def test_held_out_observations_are_not_trained_on(monkeypatch: pytest.MonkeyPatch):
    trained, held_out = set(), set()
    train, evaluate = VAEEncoder._train, VAEEncoder._evaluate

    def watch_train(self, obs, rows, *rest):  # type: ignore[no-untyped-def]
        trained.update(rows.tolist())
        return train(self, obs, rows, *rest)

    def watch_evaluate(self, obs, rows):  # type: ignore[no-untyped-def]
        held_out.update(rows.tolist())
        return evaluate(self, obs, rows)

    monkeypatch.setattr(VAEEncoder, "_train", watch_train)
    monkeypatch.setattr(VAEEncoder, "_evaluate", watch_evaluate)
    fitted(torch.rand(100, 4), epochs=2)
    assert len(held_out) == 10
    assert held_out.isdisjoint(trained)
    assert held_out | trained == set(range(100))


def test_vectors_are_standardised_and_constant_features_do_no_harm():
    generator = torch.Generator().manual_seed(0)
    factors, mixing = (torch.randn(*size, generator=generator) for size in ((300, 2), (2, 6)))
    obs = (factors @ mixing).reshape(300, 2, 3) * torch.tensor([1.0, 1e4, 1e-3]) + 7
    obs[:, 0, 0] = 5
    encoder = fitted(obs, epochs=30, batch_size=16)
    flat = obs.reshape(300, 6).double()
    deviation = flat.std(0, correction=0)
    deviation[0] = 1
    torch.testing.assert_close(encoder.center.double(), flat.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(encoder.scale.double(), deviation, rtol=1e-3, atol=1e-6)
    error = ((encoder.reconstruct(obs) - obs).reshape(300, 6) / deviation).square().mean(0)
    assert encoder.reconstruct(obs).shape == obs.shape
    # Each varying feature has variance 1 after scaling.
    assert error.max() < 0.5
    assert encoder(obs).shape == (300, 16)


def test_float_images_beyond_the_unit_interval_are_scaled_by_their_range():
    images, _ = moving_square(96, 9, 9, 1)
    unit = images.float() / 255
    wide, narrow = fitted(unit * 40 - 10, epochs=2), fitted(unit, epochs=2)
    assert float(narrow.scale) == 1.0
    assert float(wide.scale) == pytest.approx(40 * float(unit.max() - unit.min()), rel=1e-5)
    decoded = wide.reconstruct(unit * 40 - 10)
    assert decoded.mean() == pytest.approx(float((unit * 40 - 10).mean()), abs=3)


def test_bytes_are_reconstructed_within_their_range():
    images, _ = moving_square(96, 9, 9, 1)
    encoder = fitted(images, epochs=1)
    with torch.no_grad():
        encoder.center += torch.linspace(-2, 2, 81).reshape(1, 9, 9)
    decoded = encoder.reconstruct(images)
    assert decoded.dtype == torch.uint8
    assert decoded[0].flatten()[0] == 0
    assert decoded[0].flatten()[-1] == 255


def test_an_abandoned_fit_leaves_the_encoder_unfitted_and_frozen():
    encoder = VAEEncoder((4,), embedding_size=3, epochs=5)
    fit = encoder.fit(torch.rand(80, 4))
    assert isinstance(next(fit), FitProgress)
    fit.close()
    assert not encoder.ready
    assert not any(weight.requires_grad for weight in encoder.parameters())
    with pytest.raises(NotFittedError, match="fit"):
        encoder(torch.rand(2, 4))


def test_embedding_before_the_fit_is_refused():
    encoder = VAEEncoder((9, 9, 1), embedding_size=3)
    for method in (encoder, encoder.reconstruct):
        with pytest.raises(RiseError, match="has not been fitted"):
            method(torch.zeros(2, 9, 9, 1))


def test_unusable_data_is_refused_before_anything_runs():
    encoder = VAEEncoder((4,), embedding_size=3)
    with pytest.raises(ConfigError, match=r"63 observations .*at least 64"):
        encoder.fit(torch.rand(63, 4))
    with pytest.raises(ConfigError, match="all 100 observations of the warm-up are equal"):
        encoder.fit(torch.ones(100, 4))
    with pytest.raises(ConfigError, match=r"shape \(5,\) do not fit an encoder of \(4,\)"):
        encoder.fit(torch.rand(100, 5))
    broken = torch.rand(100, 4)
    broken[50, 2] = float("nan")
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        next(encoder.fit(broken))


def test_nearly_constant_data_gives_finite_losses():
    images = torch.zeros(80, 9, 9, 1, dtype=torch.uint8)
    images[3, 4, 4] = 1
    encoder = fitted(images, epochs=3)
    assert all(np.isfinite(progress.heldout_loss) for progress in encoder.history)
    assert bool(encoder(images).isfinite().all())


def test_a_diverging_fit_names_epoch_and_learning_rate():
    encoder = VAEEncoder((4,), embedding_size=3, lr=1e6, epochs=20)
    with pytest.raises(NonFiniteError, match=r"epoch \d+ with lr=1000000\.0: lower .*vae_lr"):
        list(encoder.fit(torch.rand(200, 4)))
    assert not encoder.ready


def test_fitting_twice_is_refused(small: tuple[VAEEncoder, Tensor, Tensor]):
    with pytest.raises(RiseError, match="fitted already"):
        small[0].fit(small[1])


@pytest.mark.parametrize(
    "option", [{"embedding_size": 0}, {"epochs": 0}, {"batch_size": 1}, {"lr": 0.0}]
)
def test_impossible_settings_are_refused(option: dict[str, float]):
    name, value = next(iter(option.items()))
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        VAEEncoder((4,), **option)


def test_the_state_dict_is_the_whole_encoder(small: tuple[VAEEncoder, Tensor, Tensor]):
    encoder, images, _ = small
    copy = VAEEncoder(encoder.obs_shape, embedding_size=16, seed=99)
    copy.load_state_dict(encoder.state_dict())
    assert copy.ready
    assert torch.equal(copy(images[:9]), encoder(images[:9]))
    assert torch.equal(copy.reconstruct(images[:9]), encoder.reconstruct(images[:9]))


_MEMORY = """
import resource, torch
from rllib_rise.encoders import VAEEncoder
torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
small = torch.randint(0, 256, (64, 84, 84, 4), dtype=torch.uint8)
list(VAEEncoder((84, 84, 4), epochs=1, batch_size=16).fit(small))
obs = torch.randint(0, 256, (4000, 84, 84, 4), dtype=torch.uint8)
encoder = VAEEncoder((84, 84, 4), epochs=1, batch_size=16)
# One step of training is as large as a thousand: only what grows with the data matters here.
steps, train = [], encoder._train
encoder._train = lambda obs, rows, *rest: train(obs, rows[:32], *rest)
before = peak()
list(encoder.fit(obs))
encoder(obs[:256])
print(peak() - before)
"""


def test_a_fit_never_holds_all_observations_as_floats():
    command = [sys.executable, "-c", _MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    one_copy = 4000 * 84 * 84 * 4 * 4 / 2**20
    # One shuffled copy of the bytes would be 0.25 on top of what a step takes.
    assert float(done.stdout) < 0.3 * one_copy


def test_folding_the_normalisation_changes_no_embedding():
    encoder = VAEEncoder((1, 20, 24), embedding_size=4)
    torch.manual_seed(0)
    for layer in encoder.trunk:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            layer.weight.data.normal_(1, 0.3)
            layer.bias.data.normal_()
    obs = torch.rand(7, 1, 20, 24)
    with torch.no_grad():
        expected = encoder.encode(obs)
        torch.testing.assert_close(encoder.frozen()(obs), expected, rtol=1e-4, atol=1e-5)
    assert expected.std() > 0.01
