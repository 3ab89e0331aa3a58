"""What RISE and RE3 share: embed the observations, take distances to the k-th neighbour."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.bonuses.protocol import Bonus, BonusSettings, Need, Transitions
from rllib_rise.encoders import Encoder, make_encoder
from rllib_rise.entropy import (
    group_points,
    has_k_others,
    neighbor_distances,
    renyi_entropy_from_distances,
    resolve_backend,
)
from rllib_rise.entropy.rewards import FLOOR_FRACTION
from rllib_rise.errors import ConfigError, RiseError

logger = logging.getLogger(__name__)


class StateEntropySettings(BonusSettings):
    """Settings of the bonuses that reward the distance to the k-th nearest neighbour."""

    k: Any
    encoder: str
    embedding_size: int = Field(128, ge=1, description="Dimension of a network's embedding.")
    particles: Literal["batch", "episode"] = Field(
        "batch", description="Neighbours among the whole batch, or within an episode's chunk."
    )
    knn_backend: Literal["auto", "torch", "torch+faiss", "faiss", "faiss-gpu"] = Field(
        "auto",
        description="Who searches neighbours; auto takes the fastest that is installed.",
    )


class StateEntropyBonus(Bonus):
    """Base of the k-NN bonuses; subclasses turn distances into rewards in `_reward`.

    The particles are the observations s_t of the batch's transitions. The last observation of a
    chunk that goes on in the next batch is not among them: it will be the first of that batch.
    """

    Settings: ClassVar[type[BonusSettings]] = StateEntropySettings
    logged: ClassVar = {
        "{name}_k": "k, as given or found",
        "{name}_entropy": "estimate of the entropy of the batch's embeddings, by their distances",
        "{name}_duplicates": "share of transitions whose k-th neighbour is at distance 0",
        "intrinsic_clipped_k": "transitions that had fewer than k others to choose from",
    }
    gathers = True
    entropy_order = 1.0

    def __init__(self, settings: Any, obs_shape: tuple[int, ...], *, seed: int = 0) -> None:
        super().__init__(settings, obs_shape, seed=seed)
        self.encoder = self._make_encoder()
        self.distance = RunningMoments()
        self._distances: Tensor | None = None
        self._usable: Tensor | None = None
        self._warned = False
        self._knn_backend: str | None = None
        self._knn_device: torch.device | None = None
        self._preferred_backend: str | None = None

    def _make_encoder(self) -> Encoder:
        return make_encoder(
            self.settings.encoder,
            self.obs_shape,
            embedding_size=self.settings.embedding_size,
            seed=self.seed,
        )

    @property
    def k(self) -> int:
        """Which neighbour's distance counts."""
        return self.settings.k

    @classmethod
    def largest_k(cls, settings: Any) -> int:
        """The largest k that these settings can lead to."""
        return settings.k

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """The order of episodes, where neighbours are searched within them."""
        return frozenset({Need.EPISODES} if settings.particles == "episode" else ())

    @classmethod
    def check_batch(cls, settings: Any, *, batch_size: int, chunk_size: int | None) -> None:
        """K must be smaller than the number of particles it chooses from."""
        within_episode = settings.particles == "episode"
        particles = chunk_size if within_episode and chunk_size is not None else batch_size
        most = cls.largest_k(settings)
        if most >= particles:
            what = "steps per environment and batch" if within_episode else "transitions per batch"
            found = "" if settings.k == most else f" (up to {most})"
            raise ConfigError(
                f"intrinsic.k={settings.k}{found} is not below the {particles} {what}: "
                "lower k or enlarge the batch"
            )

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """Embed, search, reward."""
        distances, usable, own = self._search(batch)
        self._distances, self._usable = distances, usable
        if len(distances) == 0 or not bool(distances[:, -1].amax() > 0):
            self._warn_constant(len(distances))
            # Before anything was seen there is no scale to judge a lack of distance by.
            if not bool(self.distance.mean > 0):
                return distances.new_zeros(len(batch))
        return self._reward(distances)[own]

    def _search(self, batch: Transitions) -> tuple[Tensor, Tensor, slice]:
        """Distances of all learners' transitions, which have k others, and which are this one's.

        All learners get the same tensors, so that whatever is derived from them stays the same.
        """
        embeddings = self.encoder(batch.obs)
        if self.settings.particles == "batch":
            everyone, own = self.gather(embeddings)
            backend = self._backend(everyone, len(everyone))
            distances = neighbor_distances(everyone, self.k, backend=backend)
            usable = has_k_others(len(everyone), self.k).to(distances.device)
            return distances, usable, own
        groups = group_points(len(batch), batch.episodes)
        backend = self._backend(embeddings, max(groups.sizes, default=0))
        distances = neighbor_distances(embeddings, self.k, groups=groups, backend=backend)
        usable = has_k_others(len(batch), self.k, groups).to(distances.device)
        everyone, own = self.gather(distances)
        return everyone, self.gather(usable)[0], own

    def _backend(self, points: Tensor, num_points: int) -> str:
        """Who searches: chosen at the first batch on a device, then kept.

        Settings that name one win over a checkpoint, and a checkpoint over `auto`.
        """
        if self._knn_backend is not None and self._knn_device == points.device:
            return self._knn_backend
        choose = partial(resolve_backend, device=points.device, num_points=num_points)
        chosen, preferred = self.settings.knn_backend, self._preferred_backend
        if chosen == "auto" and preferred is not None:
            try:
                chosen = choose(preferred)
            except RiseError as error:
                chosen = choose("auto")
                logger.warning(
                    "%s: %s searches neighbours, and not %s as for the checkpoint: %s",
                    self.name,
                    chosen,
                    preferred,
                    error,
                )
        chosen = choose(chosen)
        if num_points > 0:
            self._knn_backend, self._knn_device = chosen, points.device
            self._preferred_backend = None
        return chosen

    def choices(self) -> dict[str, Any]:
        """The k-NN backend in use."""
        backend = self._knn_backend or self._preferred_backend
        return {} if backend is None else {"knn_backend": backend}

    def prefer(self, choices: Mapping[str, Any]) -> None:
        """Choose again at the next batch, if possible what is said here."""
        self._preferred_backend = choices.get("knn_backend", self._preferred_backend)
        self._knn_backend = None

    def _reward(self, distances: Tensor) -> Tensor:
        raise NotImplementedError

    @torch.no_grad()
    def update(self, batch: Transitions) -> None:
        """Take the batch's distances into the running mean."""
        if self._distances is not None:
            self.distance.update(self._distances[:, -1])

    @property
    def floor(self) -> Tensor:
        """The smallest distance that a logarithm is taken of; a positive 0-d tensor."""
        seen = self.distance.mean
        if not bool(seen > 0) and self._distances is not None:
            seen = self._distances[:, -1].mean(dtype=torch.float64)
        return (FLOOR_FRACTION * seen).clamp(min=torch.finfo(torch.float32).tiny)

    @torch.no_grad()
    def metrics(self) -> dict[str, float]:
        """K, clipped transitions, duplicates, and the entropy estimate where it is defined."""
        if self._distances is None or self._usable is None:
            return {}
        rho = self._distances[:, -1]
        figures = {
            "intrinsic_clipped_k": float((~self._usable).sum()),
            f"{self.name}_k": float(self.k),
            f"{self.name}_duplicates": float((rho == 0).double().mean()),
        }
        entropy = self._entropy(rho)
        if entropy is not None:
            figures[f"{self.name}_entropy"] = entropy
        return figures

    def _entropy(self, rho: Tensor) -> float | None:
        """The estimate over the whole batch; undefined within episodes and for k <= order - 1."""
        order, k = self.entropy_order, min(self.k, len(rho) - 1)
        if self.settings.particles == "episode" or k < 1 or k <= order - 1:
            return None
        if order >= 1:
            rho = rho.clamp(min=float(self.floor))
        entropy = renyi_entropy_from_distances(
            rho, alpha=order, k=k, dimension=self.encoder.embedding_size
        )
        return float(entropy) if math.isfinite(float(entropy)) else None

    def _warn_constant(self, count: int) -> None:
        if count > 1 and not self._warned:
            self._warned = True
            logger.warning(
                "%s: every transition of a batch of %d has its k-th neighbour at distance 0 "
                "(k=%d), so the bonus is 0: observations are constant, or k is too small for "
                "the number of visits to each state",
                self.name,
                count,
                self.k,
            )
