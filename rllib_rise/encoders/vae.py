"""A variational autoencoder: the paper's encoder of images, fitted once and then frozen.

1. Observations are centred by the mean of the data, so that a static background costs nothing, and
   scaled: bytes to [0, 1], float images by the data's range where that exceeds [0, 1], vectors by
   the deviation of each feature (constant features by 1).
2. The encoder gives mean and log variance of q(z|x) = N(mu, diag exp(log_variance)), the decoder
   the mean of p(x|z) = N(x_hat, sigma^2 I).
3. Minimised is the negative ELBO, in nats per observation of D numbers,

       D/2 log(MSE + floor) + KL(q(z|x) || N(0, I)),

   the KL summed over latents and averaged over the batch. The first term is, up to a constant, the
   reconstruction's with the variance sigma^2 at its optimum, the mean squared error (Rybkin et al.
   2021). A fixed sigma would have to be chosen per environment; too large a one lets the posterior
   collapse onto the prior.
4. The embedding is mu. The decoder only serves the fit and `reconstruct`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rllib_rise.encoders.base import Encoder, image_layout, is_image
from rllib_rise.encoders.vae_networks import (
    conv_decoder,
    conv_encoder,
    mlp_decoder,
    mlp_encoder,
    without_normalisation,
)
from rllib_rise.errors import ConfigError, NonFiniteError, RiseError

_HELD_OUT = 0.1
_PATIENCE = 3
_MIN_OBSERVATIONS = 64
_INITIAL_LOG_VARIANCE = -6.0
# Variance of rounding to one of 256 grey levels: no reconstruction need be better than the bytes.
_VARIANCE_FLOOR = 1 / (12 * 255**2)


class NotFittedError(RiseError):
    """An encoder that learns was asked for embeddings before it was fitted."""


@dataclass(frozen=True)
class FitProgress:
    """One epoch of a fit; losses in nats per observation, lower is better.

    `heldout_loss` is `reconstruction + kl`, both on the observations that are not trained on.
    """

    epoch: int
    epochs: int
    train_loss: float
    heldout_loss: float
    reconstruction: float
    kl: float


class VAEErrors(NamedTuple):
    """What the ELBO of `[N]` observations is made of.

    Attributes:
        squared: Mean squared error over dimensions, `[N]`.
        kl: KL divergence summed over latents, `[N]`.
        latents: The posterior's mean, `[N, m]`.
    """

    squared: Tensor
    kl: Tensor
    latents: Tensor


class VAEEncoder(Encoder):
    """Convolutional for images, dense for all else; see the module's docstring for the method.

    Weights, shuffling and noise come from generators of their own: the same seed and data give
    the same encoder, and the global random stream is not touched.

    Args:
        obs_shape: Shape of one observation, images with channels first or last.
        embedding_size: Number of latents.
        seed: Seed of the weights and of the fit.
        epochs: Most passes over the data; fewer if the held-out loss stops falling.
        lr: Adam's step size.
        batch_size: Observations per step, at least 2.

    Attributes:
        fitted: Whether `fit` has come to its end (a 0-d bool tensor, saved with the weights).
        history: The epochs of the fit.
    """

    kind = "vae"
    fitted: Tensor
    center: Tensor
    scale: Tensor

    def __init__(
        self,
        obs_shape: Sequence[int],
        *,
        embedding_size: int = 128,
        seed: int = 0,
        epochs: int = 5,
        lr: float = 1e-3,
        batch_size: int = 64,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("embedding_size", embedding_size, 1),
            ("epochs", epochs, 1),
            ("batch_size", batch_size, 2),
        ):
            if value < least:
                raise ConfigError(f"{name}={value} must be at least {least}")
        if not (math.isfinite(lr) and lr > 0):
            raise ConfigError(f"lr={lr} must be a positive number")
        self.obs_shape = tuple(obs_shape)
        self.embedding_size = embedding_size
        self.seed, self.epochs, self.lr, self.batch_size = seed, epochs, lr, batch_size
        self.history: list[FitProgress] = []
        # Layers draw their weights from the global stream: lend it our seed, then give it back.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self._build()
        self.register_buffer("fitted", torch.tensor(False))
        self._freeze()

    def _build(self) -> None:
        if is_image(self.obs_shape):
            height, width, channels, _ = image_layout(self.obs_shape)
            self.trunk, features = conv_encoder(height, width, channels)
            self.decoder = conv_decoder(self.embedding_size, height, width, channels)
            # Convolutions on a CPU are faster in this order of memory, decoding most of all.
            for net in (self.trunk, self.decoder):
                net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            center, scale = torch.zeros(channels, height, width), torch.ones(())
        else:
            self.trunk, features = mlp_encoder(self.size)
            self.decoder = mlp_decoder(self.embedding_size, self.size)
            center, scale = torch.zeros(self.size), torch.ones(self.size)
        self.mean = nn.Linear(features, self.embedding_size)
        self.log_variance = nn.Linear(features, self.embedding_size)
        # Noise of unit size would drown what an untrained encoder says about a few moving pixels;
        # the decoder then learns to ignore it, and the posterior collapses before it is of use.
        nn.init.constant_(self.log_variance.bias, _INITIAL_LOG_VARIANCE)
        self.register_buffer("center", center)
        self.register_buffer("scale", scale)

    @property
    def ready(self) -> bool:
        """Whether the encoder is fitted."""
        return bool(self.fitted)

    def encode(self, obs: Tensor) -> Tensor:
        """The posterior mean of one chunk."""
        return self.mean(self.trunk(self._normalise(obs)))

    def frozen(self) -> Callable[[Tensor], Tensor]:
        """The posterior mean, without layers of batch normalisation."""
        trunk, center = without_normalisation(self.trunk), self.center[None]
        if is_image(self.obs_shape) and not image_layout(self.obs_shape).channels_first:
            # In the order of the images' own memory, to subtract it in a third of the time.
            center = center.contiguous(memory_format=torch.channels_last)
        return lambda obs: self.mean(trunk((obs - center).div_(self.scale)))

    @torch.no_grad()
    def forward(self, obs: Tensor) -> Tensor:
        """Embed all observations."""
        self._require_fitted()
        return super().forward(obs)

    @torch.no_grad()
    def reconstruct(self, obs: Tensor) -> Tensor:
        """Decode the posterior mean, in the observations' own scale, layout and dtype."""
        self._require_fitted()
        return torch.cat([self._reconstruct(chunk) for chunk in obs.split(self.batch_size)])

    def fit(self, obs: Tensor) -> Generator[FitProgress, None, None]:
        """Fit to observations `[N, *obs_shape]`, yielding after every epoch.

        A tenth is held out, by the seed; the weights of the epoch that is best on it are kept.
        The fit is complete, and the encoder usable, when the generator is exhausted.

        Raises:
            ConfigError: If there are too few observations, or all are equal.
            NonFiniteError: If the observations or the loss are not finite.
        """
        self._check(obs)
        return self._fit(obs)

    def _check(self, obs: Tensor) -> None:
        if self.fitted:
            raise RiseError("this encoder is fitted already: make a new one to fit it again")
        if tuple(obs.shape[1:]) != self.obs_shape:
            raise ConfigError(
                f"observations of shape {tuple(obs.shape[1:])} do not fit an encoder of "
                f"{self.obs_shape}"
            )
        if len(obs) < _MIN_OBSERVATIONS:
            raise ConfigError(
                f"{len(obs)} observations are too few, the encoder needs at least "
                f"{_MIN_OBSERVATIONS} to be fitted: raise intrinsic.warmup_steps"
            )
        if not any(bool((chunk != obs[0]).any()) for chunk in obs.split(self.batch_size)):
            raise ConfigError(
                f"all {len(obs)} observations of the warm-up are equal, so there is nothing to "
                "fit an encoder to: raise intrinsic.warmup_steps, or choose encoder='random'"
            )

    def _fit(self, obs: Tensor) -> Generator[FitProgress, None, None]:
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(obs), generator=generator)
        held_out, rows = order.tensor_split([round(_HELD_OUT * len(obs))])
        self._measure(obs)
        self.requires_grad_(True)
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        best, best_loss, best_epoch = self.state_dict(), math.inf, 0
        try:
            for epoch in range(1, self.epochs + 1):
                rows = rows[torch.randperm(len(rows), generator=generator)]
                train_loss = self._train(obs, rows, optimizer, generator, epoch)
                reconstruction, kl = self._evaluate(obs, held_out)
                loss = reconstruction + kl
                self._require_finite(loss, epoch)
                if loss < best_loss:
                    best = {key: value.clone() for key, value in self.state_dict().items()}
                    best_loss, best_epoch = loss, epoch
                progress = FitProgress(epoch, self.epochs, train_loss, loss, reconstruction, kl)
                self.history.append(progress)
                yield progress
                if epoch - best_epoch >= _PATIENCE:
                    break
            self.load_state_dict(best)
            self.fitted.fill_(True)
        finally:
            self._freeze()

    @torch.no_grad()
    def _measure(self, obs: Tensor) -> None:
        """Take centre and scale from the data, in two passes of minibatches."""
        chunks = obs.split(self.batch_size)
        total = torch.zeros_like(self.center, dtype=torch.float64)
        for chunk in chunks:
            total += self._load(chunk).sum(0)
        self.center.copy_(total / len(obs))
        if not bool(self.center.isfinite().all()):
            raise NonFiniteError(
                "the observations of the warm-up contain NaN or infinity: no encoder can be "
                "fitted to them, check the environment"
            )
        if not is_image(self.obs_shape):
            squares = torch.zeros_like(total)
            for chunk in chunks:
                squares += (self._load(chunk) - self.center).square().sum(0)
            deviation = (squares / len(obs)).sqrt()
            self.scale.copy_(torch.where(deviation > 0, deviation, 1.0))
        elif obs.dtype != torch.uint8:
            low = min(float(chunk.min()) for chunk in chunks)
            high = max(float(chunk.max()) for chunk in chunks)
            self.scale.fill_(1.0 if low >= 0 and high <= 1 else high - low)

    @torch.enable_grad()
    def _train(
        self,
        obs: Tensor,
        rows: Tensor,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        epoch: int,
    ) -> float:
        """One epoch; the mean loss."""
        # Batch normalisation learns its statistics; the encoder as a whole refuses to train.
        self.trunk.train()
        total = 0.0
        # Parts of nearly equal size: none is too small for batch statistics.
        for part in rows.tensor_split(math.ceil(len(rows) / self.batch_size)):
            loss = self.loss(self.errors(obs[part], generator))
            self._require_finite(float(loss.detach()), epoch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(part)
        self.trunk.eval()
        return total / len(rows)

    @torch.no_grad()
    def _evaluate(self, obs: Tensor, rows: Tensor) -> tuple[float, float]:
        """Reconstruction term and KL of the held-out observations."""
        # The same noise after every epoch, so that epochs can be compared.
        generator = torch.Generator().manual_seed(self.seed)
        squared_error, divergence = 0.0, 0.0
        for part in rows.split(self.batch_size):
            errors = self.errors(obs[part], generator)
            squared_error += float(errors.squared.sum())
            divergence += float(errors.kl.sum())
        mse = torch.tensor(squared_error / len(rows), dtype=torch.float64)
        return float(self._reconstruction(mse)), divergence / len(rows)

    def errors(self, obs: Tensor, generator: torch.Generator | None = None) -> VAEErrors:
        """What the ELBO is made of, for one chunk of observations.

        Without a generator the posterior's mean is decoded, not a sample.
        """
        x = self._normalise(self._load(obs))
        features = self.trunk(x)
        mean, log_variance = self.mean(features), self.log_variance(features)
        z = mean
        if generator is not None:
            noise = torch.randn(mean.shape, generator=generator).to(mean.device)
            z = mean + noise * torch.exp(0.5 * log_variance)
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
        return VAEErrors((self.decoder(z) - x).square().flatten(1).mean(1), kl, mean)

    def loss(self, errors: VAEErrors) -> Tensor:
        """The negative ELBO of a minibatch."""
        return self._reconstruction(errors.squared.mean()) + errors.kl.mean()

    def surprise(self, errors: VAEErrors) -> Tensor:
        """The negative ELBO of each observation, in nats up to a constant of the batch, `[N]`.

        The reconstruction's variance is that of the batch, as in `loss`.
        """
        variance = errors.squared.mean() + _VARIANCE_FLOOR
        return 0.5 * self.size * errors.squared / variance + errors.kl

    @property
    def size(self) -> int:
        """Numbers that an observation consists of."""
        return max(1, math.prod(self.obs_shape))

    def _reconstruction(self, mse: Tensor) -> Tensor:
        return 0.5 * self.size * torch.log(mse + _VARIANCE_FLOOR)

    def _load(self, obs: Tensor) -> Tensor:
        return self._prepare(obs.to(self.center.device))

    def _normalise(self, obs: Tensor) -> Tensor:
        return (obs - self.center) / self.scale

    def _reconstruct(self, obs: Tensor) -> Tensor:
        decoded = self.decoder(self.encode(self._prepare(obs))) * self.scale + self.center
        if is_image(self.obs_shape) and not image_layout(self.obs_shape).channels_first:
            decoded = decoded.movedim(1, -1)
        decoded = decoded.reshape(obs.shape)
        if obs.dtype == torch.uint8:
            return (decoded * 255).round().clamp(0, 255).to(torch.uint8)
        return decoded.to(obs.dtype) if obs.is_floating_point() else decoded.round().to(obs.dtype)

    def _freeze(self) -> None:
        self.requires_grad_(False)
        self.eval()

    def _require_fitted(self) -> None:
        if not self.fitted:
            raise NotFittedError(
                "the VAE encoder has not been fitted: run its fit() on observations, or load a "
                "fitted one with intrinsic.encoder_file"
            )

    def _require_finite(self, loss: float, epoch: int) -> None:
        if not math.isfinite(loss):
            raise NonFiniteError(
                f"the encoder's loss became {loss} in epoch {epoch} with lr={self.lr}: lower "
                "intrinsic.vae_lr, or check the observations for extreme values"
            )
