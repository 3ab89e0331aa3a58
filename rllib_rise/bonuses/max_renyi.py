"""MaxRényi: exploration by maximising the Rényi entropy (Zhang, Cai, Huang, Li 2021).

1. A VAE models the density d of states; -log d is its negative ELBO: the reconstruction's error
   under a Gaussian whose variance is the batch's mean squared error, and the KL divergence. With
   `over: state-action` a head on the VAE's latents adds -log p(a | s).
2. The gradient of the Rényi entropy of order alpha is, up to the factor alpha / (1 - alpha), that
   of the return with the reward r = d^(alpha - 1) / (mean of d^(alpha - 1)), which is computed in
   log space. The factor is left to lambda_0.
3. After the batch was rewarded, the VAE takes Adam steps on it: it follows the policy.

Departures: the paper prints the gradient with one term counted twice; here it counts once. RISE's
authors run it over states, which is the default; the paper itself is over state-action pairs. d is
that of the batches before, because models learn from a batch after it was rewarded; of the first
batch all rewards are 1. The posterior's mean is decoded, not a sample. -log d is taken per number
that a state consists of, and cut at 3 deviations above the batch's mean: else one state that the
VAE reconstructs badly would have the whole bonus. So the order in effect is 1 - (1 - alpha) / D for
D numbers, as it is for RISE's own reward.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import gymnasium as gym
import torch
from pydantic import Field
from torch import Tensor

from rllib_rise.bonuses.actions import Actions
from rllib_rise.bonuses.inputs import dense, take_in
from rllib_rise.bonuses.learning import LearningSettings, Trainer
from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.bonuses.protocol import Bonus, Need, Transitions
from rllib_rise.bonuses.registry import register_bonus
from rllib_rise.encoders import VAEEncoder
from rllib_rise.encoders.base import image_layout, is_image
from rllib_rise.encoders.vae import VAEErrors

_CUT = 3.0


class MaxRenyiSettings(LearningSettings):
    """Settings of MaxRényi."""

    alpha: float = Field(0.5, ge=0, lt=1, description="Order of the Rényi entropy.")
    over: Literal["state", "state-action"] = Field(
        "state", description="Whose density: of states, or of states and actions."
    )
    lr: float = Field(1e-3, gt=0, description="Adam's step size for the VAE.")
    embedding_size: int = Field(32, ge=1, description="Number of the VAE's latents.")


@register_bonus
class MaxRenyi(Bonus):
    """r = d(s)^(alpha - 1) over its mean in the batch, d by a VAE that follows the policy."""

    name = "max-renyi"
    Settings = MaxRenyiSettings
    logged: ClassVar = {
        "max-renyi_loss": "the model's mean loss in its last pass over the batch",
    }

    def __init__(
        self,
        settings: Any,
        obs_shape: tuple[int, ...],
        *,
        seed: int = 0,
        action_space: gym.Space | None = None,
    ) -> None:
        super().__init__(settings, obs_shape, seed=seed)
        self.vae = VAEEncoder(self.obs_shape, embedding_size=settings.embedding_size, seed=seed)
        self.vae.requires_grad_(True)
        self.actions: Actions | None = None
        self._dimensions = self.vae.size
        if settings.over == "state-action":
            self.actions = Actions(action_space, self.name)
            self._dimensions += self.actions.dimensions
            self.action_head = dense(
                settings.embedding_size,
                self.actions.outputs,
                hidden_layers=1,
                generator=torch.Generator().manual_seed(seed),
            )
        self.obs_moments = RunningMoments((self.vae.size,))
        self.trainer = Trainer(self.parameters(), settings, seed=seed)
        self._loss = 0.0

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """A density that learns, and actions where they count."""
        return frozenset(
            {Need.LEARNING, Need.ACTIONS} if settings.over == "state-action" else {Need.LEARNING}
        )

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """Rarer states and actions earn more; the mean is 1."""
        if self.trainer.updates == 0:
            return torch.ones(len(batch), device=batch.obs.device)
        nats = self.surprise(batch) / self._dimensions
        nats = nats.clamp(max=nats.mean() + _CUT * nats.std(correction=0))
        exponent = (1 - self.settings.alpha) * nats
        return torch.exp(exponent - torch.logsumexp(exponent, dim=0) + math.log(len(batch)))

    @torch.no_grad()
    def surprise(self, batch: Transitions) -> Tensor:
        """-log d of each transition, up to a constant of the batch, `[N]`."""
        chunks = batch.obs.split(self.settings.minibatch_size)
        parts = [self.vae.errors(chunk) for chunk in chunks]
        errors = VAEErrors(*(torch.cat(column) for column in zip(*parts, strict=True)))
        nats = self.vae.surprise(errors)
        if self.actions is None:
            return nats
        assert batch.actions is not None
        return nats + self.actions.surprise(self.action_head(errors.latents), batch.actions)

    def update(self, batch: Transitions) -> None:
        """Let the density follow."""
        obs, actions = batch.obs, batch.actions
        take_in(self.obs_moments, obs)
        self._rescale(in_bytes=obs.dtype == torch.uint8)
        noise = torch.Generator().manual_seed(self.seed * 1_000_003 + int(self.trainer.updates))

        def loss_of(rows: Tensor) -> Tensor:
            errors = self.vae.errors(obs[rows], noise)
            if self.actions is None:
                return self.vae.loss(errors)
            assert actions is not None
            guess = self.action_head(errors.latents.detach())
            return self.vae.loss(errors) + self.actions.surprise(guess, actions[rows]).mean()

        self.vae.trunk.train()
        self._loss = self.trainer.learn(obs, loss_of)
        self.vae.trunk.eval()

    def metrics(self) -> dict[str, float]:
        """The model's mean loss in its last pass over the batch."""
        return {"max-renyi_loss": self._loss}

    def _rescale(self, *, in_bytes: bool) -> None:
        """Centre and scale by all that was seen: vectors each feature, images as a whole."""
        center, deviation = self.obs_moments.mean, self.obs_moments.std
        if is_image(self.obs_shape):
            center = center.reshape(self.obs_shape)
            if not image_layout(self.obs_shape).channels_first:
                center = center.movedim(-1, 0)
            # Bytes are in [0, 1] already.
            deviation = torch.ones(()) if in_bytes else deviation.square().mean().sqrt()
        self.vae.center.copy_(center)
        self.vae.scale.copy_(torch.where(deviation > 0, deviation, 1.0))
