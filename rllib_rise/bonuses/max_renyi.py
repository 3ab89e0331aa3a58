"""MaxRényi: exploration by maximising the Rényi entropy (Zhang, Cai, Huang, Li 2021).

1. A VAE models the density d of the states in the batch; -log d is its negative ELBO: the
   reconstruction's error under a Gaussian whose variance is the batch's mean squared error, and the
   KL divergence. With `over: state-action` a head on the VAE's latent adds -log p(a | s).
2. The gradient of the Rényi entropy of order alpha is that of the return with the reward
   r = d^(alpha - 1), so r = exp((1 - alpha) (-log d)), divided by the largest in the batch:
   constant factors are lambda_0's, and densities of images are far out of range. Of images -log d
   is taken per number that the image consists of: with all of it, the rarest state would have the
   whole bonus.
3. After the batch was rewarded, the VAE takes Adam steps on it: it follows the policy. That makes
   it the slowest of the bonuses.

Departures: the paper prints the gradient with one term counted twice; the reward here is the one
that agrees with finite differences. RISE's authors run it over states, which is the default; the
paper itself is over state-action pairs.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import torch
from pydantic import Field
from torch import Tensor

from rllib_rise.bonuses.actions import Actions
from rllib_rise.bonuses.inputs import dense, flat
from rllib_rise.bonuses.learning import LearningSettings, Trainer
from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.bonuses.protocol import Bonus, Need, Transitions
from rllib_rise.bonuses.registry import register_bonus
from rllib_rise.encoders import VAEEncoder
from rllib_rise.encoders.base import is_image


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
    """r = d(s)^(alpha - 1) over the largest of the batch, d by a VAE that follows the policy."""

    name = "max-renyi"
    Settings = MaxRenyiSettings

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
        if settings.over == "state-action":
            self.actions = Actions(action_space, self.name)
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
        """Rarer states and actions earn more, the rarest 1."""
        if len(batch) == 0:
            return batch.obs.new_zeros(0, dtype=torch.float32)
        chunks = batch.obs.split(self.settings.minibatch_size)
        parts = [self.vae.errors(chunk) for chunk in chunks]
        squared_error, kl = (torch.cat(column) for column in zip(*parts, strict=True))
        nats = self.vae.surprise(squared_error, kl)
        if is_image(self.obs_shape):
            nats = nats / self.vae.size
        if self.actions is not None:
            assert batch.actions is not None
            latents = torch.cat([self._latents(chunk) for chunk in chunks])
            nats = nats + self.actions.surprise(self.action_head(latents), batch.actions)
        return torch.exp((1 - self.settings.alpha) * (nats - nats.max()))

    def update(self, batch: Transitions) -> None:
        """Let the density follow."""
        obs, actions = batch.obs, batch.actions
        self.obs_moments.update(flat(obs))
        self._rescale()
        noise = torch.Generator().manual_seed(self.seed * 1_000_003 + int(self.trainer.updates))

        def loss_of(rows: Tensor) -> Tensor:
            loss = self.vae.loss(*self.vae.errors(obs[rows], noise))
            if self.actions is None:
                return loss
            assert actions is not None
            guess = self.action_head(self._latents(obs[rows]).detach())
            return loss + self.actions.surprise(guess, actions[rows]).mean()

        self.vae.trunk.train()
        self._loss = self.trainer.learn(obs, loss_of)
        self.vae.trunk.eval()

    def metrics(self) -> dict[str, float]:
        """The VAE's mean loss in its last pass over the batch."""
        return {"max-renyi_loss": self._loss}

    def _rescale(self) -> None:
        """Centre observations by all that were seen; vectors are scaled by their deviation too."""
        shape = self.vae.center.shape
        center = self.obs_moments.mean
        if is_image(self.obs_shape):
            center = self.vae._prepare(center.reshape(1, *self.obs_shape))[0]
        else:
            deviation = self.obs_moments.std
            self.vae.scale.copy_(torch.where(deviation > 0, deviation, 1.0))
        self.vae.center.copy_(center.reshape(shape))

    def _latents(self, obs: Tensor) -> Tensor:
        return self.vae.encode(self.vae._prepare(obs))
