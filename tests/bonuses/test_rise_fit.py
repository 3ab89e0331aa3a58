"""RISE's Phase 1 without Ray: what is fitted, what is searched, what is taken over."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from rllib_rise.bonuses import RE3, RISE, RND, Fit, Transitions, parse_settings
from rllib_rise.encoders import RandomEncoder, save_encoder
from rllib_rise.entropy import search_k
from rllib_rise.errors import ConfigError, RiseError


def make(shape: tuple[int, ...] = (4,), seed: int = 0, **values) -> RISE:
    return RISE(parse_settings(RISE, values), shape, seed=seed)


def fit(bonus: RISE, obs: torch.Tensor) -> Fit:
    steps = bonus.fit(obs)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def vectors(count: int = 400, size: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def squares(count: int = 200, side: int = 12) -> torch.Tensor:
    """A bright square at a random place of a dark image."""
    generator = torch.Generator().manual_seed(0)
    images = torch.zeros(count, side, side, 1, dtype=torch.uint8)
    for image, (row, column) in zip(
        images, torch.randint(0, side - 3, (count, 2), generator=generator), strict=True
    ):
        image[row : row + 3, column : column + 3] = 255
    return images


def warmup(shape: tuple[int, ...], **values) -> int:
    return RISE.warmup_steps(parse_settings(RISE, values), shape)


def test_phase_1_is_there_if_k_is_searched_or_an_encoder_fitted():
    assert warmup((4,)) == 10_000
    assert warmup((4,), k=3) == 0
    assert warmup((4,), k=3, encoder="vae") == 10_000
    assert warmup((84, 84, 4), k=3) == 10_000
    assert warmup((84, 84, 4), k=3, encoder="random") == 0
    assert warmup((84, 84, 4), k=3, encoder_file="some.safetensors") == 0
    assert warmup((84, 84, 4), encoder_file="some.safetensors", warmup_steps=500) == 500
    for other in (RE3, RND):
        assert other.warmup_steps(parse_settings(other, {}), (4,)) == 0


def test_k_is_the_searched_one_and_belongs_to_the_state():
    bonus, obs = make(alpha=0.3, seed=5), vectors()
    assert not bonus.fitted
    report = bonus.adopt(fit(bonus, obs))
    expected = search_k(obs, alpha=0.3, seed=5)
    assert bonus.fitted
    assert bonus.k == expected.k
    assert report.figures["k"] == expected.k
    assert report.figures["k_search"]["ratios"] == list(expected.ratios)
    other = make(alpha=0.3, seed=5)
    other.load_state_dict(bonus.state_dict())
    assert other.fitted
    assert other.k == bonus.k
    batch = Transitions(obs=vectors(64, seed=1))
    assert torch.equal(other.reward(batch), bonus.reward(batch))
    assert other.metrics()["rise_k"] == expected.k


def test_a_fit_serves_another_alpha_and_only_k_is_searched_again():
    first = make(shape=(12, 12, 1), alpha=0.0, vae_epochs=2)
    found = fit(first, squares())
    first.adopt(found)
    second = make(shape=(12, 12, 1), alpha=0.9, vae_epochs=2)
    second.adopt(found)
    weights = first.encoder.state_dict()
    assert all(torch.equal(weights[k], v) for k, v in second.encoder.state_dict().items())
    embeddings = first.encoder(squares())
    assert first.k == search_k(embeddings, alpha=0.0).k
    assert second.k == search_k(embeddings, alpha=0.9).k


def fit_settings(shape: tuple[int, ...] = (4,), **values) -> dict:
    return RISE.fit_settings(parse_settings(RISE, values), shape)


def test_settings_that_the_fit_does_not_depend_on_are_not_in_its_key():
    key = fit_settings()
    for values in ({"alpha": 0.7}, {"lambda_0": 1.0}, {"kappa": 0.1}, {"k": 3}, {"zeta": 0.5}):
        assert fit_settings(**values) == key
    for values in ({"encoder": "vae"}, {"vae_epochs": 1}, {"vae_lr": 1.0}, {"warmup_steps": 999}):
        assert fit_settings(**values) != key


def test_the_report_holds_pictures_and_an_encoder_file_that_can_be_used(tmp_path):
    bonus, images = make(shape=(12, 12, 1), vae_epochs=2), squares()
    report = bonus.adopt(fit(bonus, images))
    assert report.arrays["originals"].shape == (8, 12, 12, 1)
    assert report.arrays["reconstructions"].dtype == np.uint8
    assert report.arrays["projection"].shape == (200, 2)
    assert report.arrays["bonus"].shape == (200,)
    assert len(report.figures["history"]) == 2
    assert set(report.figures["seconds"]) == {"fit", "embed", "search_k"}
    path = tmp_path / "encoder.safetensors"
    path.write_bytes(report.files["encoder.safetensors"])
    again = make(shape=(12, 12, 1), encoder_file=str(path), k=3)
    assert not again.fitted
    report = again.adopt(fit(again, images[:0]))
    assert again.fitted
    assert torch.equal(again.encoder(images), bonus.encoder(images))
    assert report.figures["observations"] == 0
    assert not report.arrays["originals"].size


def test_encoder_files_that_do_not_fit_are_refused_before_any_step(tmp_path):
    path = tmp_path / "encoder.safetensors"
    encoder = make(shape=(12, 12, 1), vae_epochs=1)
    encoder.adopt(fit(encoder, squares()))
    save_encoder(encoder.encoder, path)
    one = fit_settings((12, 12, 1), encoder_file=path)
    with pytest.raises(ConfigError, match=r"\(12, 12, 1\).*\(84, 84, 4\)"):
        fit_settings((84, 84, 4), encoder_file=path)
    with pytest.raises(ConfigError, match=r"in 128 dimensions: set intrinsic.embedding_size"):
        fit_settings((12, 12, 1), encoder_file=path, embedding_size=64)
    save_encoder(RandomEncoder((12, 12, 1), embedding_size=128, seed=0), path)
    with pytest.raises(ConfigError, match=r"of the kind 'random', not a VAE"):
        fit_settings((12, 12, 1), encoder_file=path)
    other = make(shape=(12, 12, 1), vae_epochs=1, seed=1)
    other.adopt(fit(other, squares()))
    save_encoder(other.encoder, path)
    assert fit_settings((12, 12, 1), encoder_file=path) != one


def test_the_projection_is_that_of_the_principal_components():
    from sklearn.decomposition import PCA

    for size in (3, 300):  # more observations than numbers, and fewer
        obs = vectors(150, size) * torch.linspace(3, 0.1, size)
        bonus = make(shape=(size,))
        report = bonus.adopt(fit(bonus, obs))
        reference = PCA(2).fit(obs.double().numpy())
        ours, theirs = report.arrays["projection"], reference.transform(obs.double().numpy())
        np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=2e-3)
        np.testing.assert_allclose(
            report.figures["explained_variance"], reference.explained_variance_ratio_, rtol=1e-3
        )


def test_one_dimensional_observations_have_a_picture_too():
    bonus = make(shape=(1,))
    report = bonus.adopt(fit(bonus, vectors(200, 1)))
    assert report.arrays["projection"].shape == (200, 2)


def test_duplicates_everywhere_fall_back_to_a_k_and_say_so(caplog):
    bonus = make()
    with caplog.at_level(logging.WARNING):
        report = bonus.adopt(fit(bonus, torch.ones(200, 4)))
    assert bonus.k == 5
    assert report.figures["k_search"]["ratios"] == [None] * 15
    assert "duplicates" in caplog.text


def test_the_intrinsic_dimension_needs_two_neighbours_so_one_is_never_found():
    for seed in range(5):
        bonus = make(form="intrinsic-dim", seed=seed)
        bonus.adopt(fit(bonus, vectors(200, seed=seed)))
        assert bonus.k >= 2


def test_too_few_observations_name_the_setting():
    with pytest.raises(ConfigError, match=r"raise intrinsic\.warmup_steps=10000"):
        fit(make(), vectors(100))
    with pytest.raises(ConfigError, match="warmup_steps"):
        fit(make(shape=(12, 12, 1), k=3), squares(20))


def test_nan_in_the_loss_is_named():
    images = squares().float()
    images[3, 0, 0, 0] = float("inf")
    with pytest.raises(RiseError, match="NaN or infinity"):
        fit(make(shape=(12, 12, 1)), images)
    with pytest.raises(RiseError, match=r"loss became .* lr=1e\+30"):
        fit(make(shape=(12, 12, 1), vae_lr=1e30), squares())


def test_the_identity_keeps_bytes_as_bytes():
    images = torch.randint(0, 256, (200, 5, 5, 3), dtype=torch.uint8)
    bonus = make(shape=(5, 5, 3), encoder="identity")
    found = fit(bonus, images)
    assert found.tensors["embeddings"].dtype == torch.uint8
    assert found.tensors["embeddings"].data_ptr() == images.data_ptr()
    bonus.adopt(found)
    assert bonus.fitted


def test_an_encoder_that_was_not_fitted_cannot_be_saved(tmp_path):
    with pytest.raises(RiseError, match="not fitted"):
        save_encoder(make(shape=(12, 12, 1)).encoder, tmp_path / "x")


def test_a_random_k_is_drawn_by_the_seed_alone():
    drawn = {make_with_random_k(seed).k for seed in range(200)}
    assert drawn == set(range(1, 16))
    bonus, other = make_with_random_k(3), make_with_random_k(4)
    assert bonus.fitted
    assert bonus.k == make_with_random_k(3).k != other.k
    fixed = RISE(parse_settings(RISE, {"k": 3}), (2,))
    bonus.load_state_dict(fixed.state_dict())  # settings are not state: a new config wins
    assert bonus.k == make_with_random_k(3).k


def make_with_random_k(seed: int) -> RISE:
    return RISE(parse_settings(RISE, {"k": "random"}), (2,), seed=seed)
