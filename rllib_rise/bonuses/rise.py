"""RISE: Rényi state entropy maximisation (Yuan, Pun, Wang 2022)."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from rllib_rise.bonuses.fit_pictures import fit_pictures, sample_reconstructions
from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.bonuses.protocol import Fit, FitReport, FitSteps, Need, Transitions
from rllib_rise.bonuses.registry import register_bonus
from rllib_rise.bonuses.state_entropy import StateEntropyBonus, StateEntropySettings
from rllib_rise.encoders import (
    Encoder,
    VAEEncoder,
    encoder_to_bytes,
    load_encoder,
    make_encoder,
)
from rllib_rise.encoders.base import is_image
from rllib_rise.entropy import check_alpha, intrinsic_dimension, renyi_reward, search_k
from rllib_rise.errors import ConfigError

logger = logging.getLogger(__name__)

K_MAX = 15
NUM_SUBSETS = 8
# Where the search cannot tell (too many duplicates), and the smallest set it can work on.
FALLBACK_K = 5
_MIN_OBSERVATIONS = NUM_SUBSETS * (K_MAX + 1)
_EMBED_CHUNK = 1024


class RISESettings(StateEntropySettings):
    """Settings of RISE; names are the paper's."""

    alpha: float = Field(0.1, description="Order of the Rényi entropy.")
    k: int | Literal["auto", "random"] = Field(
        "auto",
        description="Which neighbour's distance counts (self excluded); auto searches it, random "
        "draws one up to 15 by the seed, for ablations.",
    )
    form: Literal["paper", "box-cox", "intrinsic-dim"] = Field(
        "paper", description="How a distance becomes a reward."
    )
    encoder: Literal["auto", "vae", "random", "identity"] = Field(
        "auto",
        description="Where distances are taken: auto is vae for images, identity for vectors.",
    )
    encoder_file: Path | None = Field(
        None, description="A fitted VAE, as a run leaves it in encoder.safetensors."
    )
    warmup_steps: int = Field(
        10_000,
        ge=_MIN_OBSERVATIONS,
        description="Environment steps of Phase 1, over all environments, if there is one.",
    )
    vae_epochs: int = Field(5, ge=1, description="Most passes of the VAE over Phase 1's data.")
    vae_lr: float = Field(1e-3, gt=0, description="Adam's step size for the VAE.")

    @field_validator("k", mode="before")
    @classmethod
    def _check_k(cls, value: Any) -> Any:
        if value in ("auto", "random") or (
            isinstance(value, int) and not isinstance(value, bool) and value > 0
        ):
            return value
        raise ConfigError(
            f"intrinsic.k={value!r} must be an integer of at least 1, 'auto' or 'random'"
        )

    @model_validator(mode="after")
    def _check(self) -> RISESettings:
        check_alpha(self.alpha, self.form)
        if self.form == "intrinsic-dim" and self.k == 1:
            raise ConfigError(
                "form='intrinsic-dim' estimates a dimension from the distances to several "
                "neighbours: k=1 must be at least 2"
            )
        if self.encoder_file is not None and self.encoder not in ("auto", "vae"):
            raise ConfigError(
                f"encoder={self.encoder!r} and encoder_file={str(self.encoder_file)!r} exclude "
                "each other: the file holds a VAE"
            )
        return self


_PICTURES = ("originals", "reconstructions")


@register_bonus
class RISE(StateEntropyBonus):
    """r_hat(s_t) from rho_t, the distance of s_t's embedding to its k-th neighbour in the batch.

    1. y_t = encoder(s_t)
    2. rho_t = || y_t - k-th nearest of the others ||
    3. `paper`: rho^(1-alpha); `box-cox`: (rho^(1-alpha) - 1) / (1-alpha); `intrinsic-dim`:
       exp((1-alpha) d (log rho - c)) with d the intrinsic dimension of the data and c the mean of
       log rho. d, c and the floor of `box-cox` are running means over the batches before this one:
       with the batch's own mean, spreading wider would earn nothing.

    Phase 1 fits the encoder, where it is a VAE, and searches k, where it is "auto". The fit does
    not depend on alpha, lambda_0 and kappa; the search does on alpha, and is made again for each.
    """

    name = "rise"
    Settings = RISESettings
    logged: ClassVar = {
        **StateEntropyBonus.logged,
        "rise_intrinsic_dimension": "d, with form `intrinsic-dim`",
    }
    searched_k: Tensor

    def __init__(self, settings: Any, obs_shape: tuple[int, ...], *, seed: int = 0) -> None:
        super().__init__(settings, obs_shape, seed=seed)
        self.entropy_order = settings.alpha
        self.log_distance = RunningMoments()
        self.inverse_dimension = RunningMoments()
        self.register_buffer("searched_k", torch.zeros((), dtype=torch.int64))
        generator = torch.Generator().manual_seed(seed)
        self._drawn_k = int(torch.randint(_least_k(settings), K_MAX + 1, (), generator=generator))

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """Running means too, but for the paper's form."""
        running = frozenset({Need.RUNNING} if settings.form != "paper" else ())
        return super().needs(settings) | running

    def _make_encoder(self) -> Encoder:
        settings = self.settings
        return make_encoder(
            "vae" if settings.encoder_file is not None else settings.encoder,
            self.obs_shape,
            embedding_size=settings.embedding_size,
            seed=self.seed,
            epochs=settings.vae_epochs,
            lr=settings.vae_lr,
        )

    @property
    def k(self) -> int:
        """The configured neighbour, or the one that was found or drawn."""
        if self.settings.k == "random":
            return self._drawn_k
        return int(self.searched_k) if self.settings.k == "auto" else self.settings.k

    @classmethod
    def largest_k(cls, settings: Any) -> int:
        """The configured k, or the largest that may be found or drawn."""
        return settings.k if isinstance(settings.k, int) else K_MAX

    @classmethod
    def warmup_steps(cls, settings: Any, obs_shape: tuple[int, ...]) -> int:
        """`warmup_steps`, if k is searched or an encoder fitted."""
        learns = settings.encoder == "vae" or (settings.encoder == "auto" and is_image(obs_shape))
        if settings.k != "auto" and (settings.encoder_file is not None or not learns):
            return 0
        return settings.warmup_steps

    @classmethod
    def fit_settings(cls, settings: Any, obs_shape: tuple[int, ...]) -> dict[str, Any]:
        """What the encoder and its embeddings depend on."""
        names = ("encoder", "embedding_size", "warmup_steps", "vae_epochs", "vae_lr")
        chosen = {name: getattr(settings, name) for name in names}
        if settings.encoder_file is not None:
            _load(settings, obs_shape)
            content = settings.encoder_file.read_bytes()
            chosen["encoder_file"] = hashlib.sha256(content).hexdigest()
        return chosen

    @property
    def fitted(self) -> bool:
        """Whether the encoder can embed and k is known."""
        return self.encoder.ready and self.k > 0

    def fit(self, obs: Tensor) -> FitSteps:
        """Fit the encoder and embed the observations."""
        if self.settings.k == "auto" and len(obs) < _MIN_OBSERVATIONS:
            raise ConfigError(
                f"Phase 1 gave {len(obs)} observations, and the search for k needs at least "
                f"{_MIN_OBSERVATIONS}: raise intrinsic.warmup_steps={self.settings.warmup_steps}"
            )
        tensors: dict[str, Tensor] = {}
        info: dict[str, Any] = {"observations": len(obs), "seconds": {}}
        encoder = self.encoder
        if not encoder.ready:
            started = time.perf_counter()
            # A new one: what an interrupted fit left behind is no place to begin.
            encoder = yield from self._fitted_encoder(obs)
            info["seconds"]["fit"] = time.perf_counter() - started
            info["history"] = [asdict(step) for step in encoder.history]
        if isinstance(encoder, VAEEncoder):
            tensors |= {f"encoder.{k}": v.cpu() for k, v in encoder.state_dict().items()}
            tensors |= sample_reconstructions(encoder, obs)
        if len(obs) > 0:
            yield f"embedding {len(obs):,} observations"
        started = time.perf_counter()
        tensors["embeddings"] = _embed(encoder, obs, self.searched_k.device)
        info["seconds"]["embed"] = time.perf_counter() - started
        return Fit(tensors, info)

    def _fitted_encoder(self, obs: Tensor) -> Generator[str, None, VAEEncoder]:
        """The VAE of the file, or one that is fitted here."""
        if self.settings.encoder_file is not None:
            yield f"the encoder is that of {self.settings.encoder_file}"
            return _load(self.settings, self.obs_shape).to(self.searched_k.device)
        encoder = self._make_encoder().to(self.searched_k.device)
        assert isinstance(encoder, VAEEncoder)
        for step in encoder.fit(obs):
            yield f"VAE: epoch {step.epoch} of {step.epochs}, loss {step.heldout_loss:,.0f}"
        return encoder

    @torch.no_grad()
    def adopt(self, fit: Fit) -> FitReport:
        """Take over the encoder and search k for this alpha."""
        prefix = "encoder."
        weights = {
            name.removeprefix(prefix): tensor
            for name, tensor in fit.tensors.items()
            if name.startswith(prefix)
        }
        if weights:
            # Weights of another shape are an error that must not leave half of them behind.
            self._make_encoder().load_state_dict(weights)
            self.encoder.load_state_dict(weights)
        embeddings = fit.tensors["embeddings"]
        seconds, search = dict(fit.info["seconds"]), None
        if self.settings.k == "auto":
            started = time.perf_counter()
            search = self._search_k(embeddings)
            seconds["search_k"] = time.perf_counter() - started
        arrays = {k: fit.tensors[k].numpy() for k in _PICTURES if k in fit.tensors}
        explained = None
        if len(embeddings) > self.k:
            pictures = fit_pictures(embeddings, self.k, self._picture_reward)
            explained = pictures.pop("explained_variance").tolist()
            arrays |= pictures
        figures = {
            "encoder": "file" if self.settings.encoder_file else self.encoder.kind,
            "embedding_size": self.encoder.embedding_size,
            "observations": fit.info["observations"],
            "k": self.k,
            "alpha": self.settings.alpha,
            "k_search": search,
            "history": fit.info.get("history", []),
            "explained_variance": explained,
            "seconds": seconds,
        }
        files = {"encoder.safetensors": encoder_to_bytes(self.encoder)} if weights else {}
        return FitReport(figures, arrays, files)

    def _search_k(self, embeddings: Tensor) -> dict[str, Any]:
        found = search_k(
            embeddings.to(self.searched_k.device),
            alpha=self.settings.alpha,
            k_max=K_MAX,
            num_subsets=NUM_SUBSETS,
            seed=self.seed,
            k_min=_least_k(self.settings),
            backend=self.settings.knn_backend,
        )
        if found.k is None:
            logger.warning(
                "rise: the search for k found no k up to %d for which every subset of Phase 1's "
                "observations has an estimate (too many duplicates); k=%d is taken",
                K_MAX,
                FALLBACK_K,
            )
        self.searched_k.fill_(found.k or FALLBACK_K)
        ratios = [ratio if math.isfinite(ratio) else None for ratio in found.ratios]
        return {"k_max": K_MAX, "num_subsets": NUM_SUBSETS, "ratios": ratios}

    def _picture_reward(self, rho: Tensor) -> Tensor:
        # `intrinsic-dim` needs what training has yet to show; the picture takes the paper's form.
        form = "box-cox" if self.settings.form == "box-cox" else "paper"
        return renyi_reward(rho, alpha=self.settings.alpha, form=form)

    def _reward(self, distances: Tensor) -> Tensor:
        alpha, form = self.settings.alpha, self.settings.form
        if form == "paper":
            return renyi_reward(distances, alpha=alpha)
        if form == "box-cox":
            return renyi_reward(distances, alpha=alpha, form=form, floor=self.floor)
        center, dimension = self.log_distance.mean, 1 / self.inverse_dimension.mean
        if self.log_distance.count == 0:
            logs, inverse = self._geometry(distances)
            center = logs.mean() if len(logs) else center
            dimension = 1 / inverse
        return renyi_reward(
            distances, alpha=alpha, form=form, dimension=dimension, log_center=center
        )

    def _geometry(self, distances: Tensor) -> tuple[Tensor, Tensor]:
        """Log rho of the particles that can tell, and the inverse intrinsic dimension.

        Duplicates cannot, nor those with fewer than k others, which repeat their last distance.
        """
        assert self._usable is not None
        usable = distances[self._usable & (distances[:, -1] > 0)]
        return usable[:, -1].double().log(), 1 / intrinsic_dimension(usable).double()

    @torch.no_grad()
    def update(self, batch: Transitions) -> None:
        """Take the batch into the running means that the reward forms use."""
        super().update(batch)
        if self.settings.form != "intrinsic-dim" or self._distances is None:
            return
        logs, inverse = self._geometry(self._distances)
        self.log_distance.update(logs)
        self.inverse_dimension.update(inverse.expand(len(logs)))

    def metrics(self) -> dict[str, float]:
        """Those of every k-NN bonus, and the intrinsic dimension where it is used."""
        figures = super().metrics()
        if self.settings.form == "intrinsic-dim" and self.inverse_dimension.count > 0:
            figures["rise_intrinsic_dimension"] = float(1 / self.inverse_dimension.mean)
        return figures


def _least_k(settings: RISESettings) -> int:
    """A dimension is estimated from the distances to two neighbours at least."""
    return 2 if settings.form == "intrinsic-dim" else 1


def _load(settings: RISESettings, obs_shape: tuple[int, ...]) -> VAEEncoder:
    """The encoder of `encoder_file`; an error where it is not what the settings say."""
    assert settings.encoder_file is not None
    encoder = load_encoder(settings.encoder_file, obs_shape)
    setting = f"intrinsic.encoder_file={str(settings.encoder_file)!r}"
    if not isinstance(encoder, VAEEncoder):
        raise ConfigError(f"{setting} holds an encoder of the kind {encoder.kind!r}, not a VAE")
    if encoder.embedding_size != settings.embedding_size:
        raise ConfigError(
            f"{setting} embeds in {encoder.embedding_size} dimensions: set "
            f"intrinsic.embedding_size to that, it is {settings.embedding_size}"
        )
    return encoder


def _embed(encoder: Encoder, obs: Tensor, device: torch.device) -> Tensor:
    """The embeddings of all observations, on the CPU."""
    if encoder.kind == "identity":
        # In their own type: bytes stay bytes, and the search for k does not mind the scale.
        return obs.reshape(len(obs), encoder.embedding_size)
    return torch.cat([encoder(part.to(device)).cpu() for part in obs.split(_EMBED_CHUNK)])
