from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rllib_rise.encoders import (
    Encoder,
    IdentityEncoder,
    RandomEncoder,
    VAEEncoder,
    load_encoder,
    save_encoder,
)
from rllib_rise.errors import ConfigError, RiseError

SHAPE = (9, 9, 2)
OBS = torch.randint(0, 256, (80, *SHAPE), dtype=torch.uint8)


def fitted_vae() -> VAEEncoder:
    encoder = VAEEncoder(SHAPE, embedding_size=5, seed=4, epochs=1)
    list(encoder.fit(OBS))
    return encoder


@pytest.mark.parametrize(
    "make",
    [
        fitted_vae,
        lambda: RandomEncoder(SHAPE, embedding_size=7, seed=3),
        lambda: IdentityEncoder(SHAPE),
    ],
    ids=["vae", "random", "identity"],
)
def test_a_loaded_encoder_is_the_saved_one(make, tmp_path: Path):  # type: ignore[no-untyped-def]
    encoder: Encoder = make()
    save_encoder(encoder, tmp_path / "encoder.safetensors")
    loaded = load_encoder(tmp_path / "encoder.safetensors", SHAPE)
    assert type(loaded) is type(encoder)
    assert loaded.embedding_size == encoder.embedding_size
    assert loaded.ready
    assert torch.equal(loaded(OBS), encoder(OBS))


def test_a_loaded_vae_still_reconstructs(tmp_path: Path):
    encoder = fitted_vae()
    save_encoder(encoder, tmp_path / "encoder.safetensors")
    loaded = load_encoder(tmp_path / "encoder.safetensors", SHAPE)
    assert isinstance(loaded, VAEEncoder)
    assert torch.equal(loaded.reconstruct(OBS), encoder.reconstruct(OBS))


def test_an_unfitted_encoder_is_not_saved(tmp_path: Path):
    with pytest.raises(RiseError, match="not fitted"):
        save_encoder(VAEEncoder(SHAPE), tmp_path / "encoder.safetensors")
    assert not (tmp_path / "encoder.safetensors").exists()


def test_encoders_of_other_observations_are_refused(tmp_path: Path):
    path = tmp_path / "encoder.safetensors"
    save_encoder(RandomEncoder(SHAPE, embedding_size=7, seed=3), path)
    with pytest.raises(
        ConfigError, match=r"intrinsic.encoder_file=.*\(9, 9, 2\).* gives \(2, 9, 9\)"
    ):
        load_encoder(path, (2, 9, 9))


def test_files_that_are_no_encoders_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"intrinsic.encoder_file='.*nothing' does not exist"):
        load_encoder(tmp_path / "nothing", SHAPE)
    (tmp_path / "text").write_text("hello, this is no encoder")
    with pytest.raises(ConfigError, match=r"intrinsic.encoder_file=.*cannot be read"):
        load_encoder(tmp_path / "text", SHAPE)
    save_file({"weight": torch.ones(3)}, tmp_path / "other")
    with pytest.raises(ConfigError, match=r"intrinsic.encoder_file=.*holds no encoder"):
        load_encoder(tmp_path / "other", SHAPE)


def test_damaged_and_future_files_are_refused(tmp_path: Path):
    metadata = {"kind": "random", "obs_shape": "[9, 9, 2]", "embedding_size": "7"}
    metadata["format"] = "rllib_rise encoder"
    save_file({"weight": torch.ones(3)}, tmp_path / "damaged", metadata | {"version": "2"})
    with pytest.raises(ConfigError, match=r"intrinsic.encoder_file=.*is damaged"):
        load_encoder(tmp_path / "damaged", SHAPE)
    save_file({"weight": torch.ones(3)}, tmp_path / "future", metadata | {"version": "3"})
    with pytest.raises(ConfigError, match="format version 3, this release reads 2"):
        load_encoder(tmp_path / "future", SHAPE)
    poor = {"format": "rllib_rise encoder", "version": "2"}
    save_file({"weight": torch.ones(3)}, tmp_path / "poor", poor)
    with pytest.raises(ConfigError, match=r"intrinsic.encoder_file=.*metadata lacks 'kind'"):
        load_encoder(tmp_path / "poor", SHAPE)
