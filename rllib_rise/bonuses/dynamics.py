"""Inverse and forward dynamics: features of what the agent can influence (Pathak et al. 2017)."""

from __future__ import annotations

import gymnasium as gym
import torch
from pydantic import Field
from torch import Tensor, nn

from rllib_rise.bonuses.actions import Actions
from rllib_rise.bonuses.inputs import Whitening, dense, network
from rllib_rise.bonuses.learning import LearningSettings, Trainer
from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.bonuses.protocol import Transitions


class DynamicsSettings(LearningSettings):
    """Settings of the bonuses that learn features from the dynamics."""

    lr: float = Field(1e-3, gt=0, description="Adam's step size for the model.")
    embedding_size: int = Field(128, ge=1, description="Dimension of the features.")


class Dynamics(nn.Module):
    """Features phi(s), an inverse model of a given phi(s) and phi(s'), a forward model of phi(s').

    Trained together on (1 - beta) L_inverse + beta L_forward, where L_inverse is -log p(a) and
    L_forward is || phi(s') - prediction ||^2 / 2; with beta = 0 there is no forward model.
    """

    def __init__(
        self,
        settings: DynamicsSettings,
        obs_shape: tuple[int, ...],
        action_space: gym.Space | None,
        *,
        method: str,
        beta: float,
        seed: int,
    ) -> None:
        super().__init__()
        self.actions = Actions(action_space, method)
        self.beta, self._step = beta, settings.minibatch_size
        size, generator = settings.embedding_size, torch.Generator().manual_seed(seed)
        self.encoder = network(obs_shape, size, hidden_layers=0, generator=generator)
        self.inverse = dense(2 * size, self.actions.outputs, hidden_layers=1, generator=generator)
        if beta > 0:
            self.forward_model = dense(
                size + self.actions.size, size, hidden_layers=1, generator=generator
            )
        self.whiten = Whitening(obs_shape)
        self.trainer = Trainer(self.parameters(), settings, seed=seed)
        self.inverse_loss = self.forward_loss = torch.zeros(())

    @torch.no_grad()
    def embed(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """Features of s_t and of s_{t+1}, `[N, m]` each."""
        assert batch.next_obs is not None
        moments = self.whiten.moments(batch.next_obs)
        return self._features(batch.obs, moments), self._features(batch.next_obs, moments)

    @torch.no_grad()
    def errors(self, batch: Transitions) -> Tensor:
        """|| phi(s_{t+1}) - prediction ||^2 / 2 of each transition, `[N]`."""
        assert batch.actions is not None
        phi, phi_next = self.embed(batch)
        return self._forward_errors(phi, batch.actions, phi_next)

    def update(self, batch: Transitions) -> None:
        """Learn from a batch."""
        assert batch.next_obs is not None
        assert batch.actions is not None
        obs, next_obs, actions = batch.obs, batch.next_obs, batch.actions
        self.whiten.update(next_obs)

        def loss_of(rows: Tensor) -> Tensor:
            phi = self.encoder(self.whiten(obs[rows]))
            phi_next = self.encoder(self.whiten(next_obs[rows]))
            guess = self.inverse(torch.cat([phi, phi_next], dim=1))
            loss = self.actions.surprise(guess, actions[rows]).mean()
            self.inverse_loss = loss.detach()
            if self.beta == 0:
                return loss
            error = self._forward_errors(phi, actions[rows], phi_next).mean()
            self.forward_loss = error.detach()
            return (1 - self.beta) * loss + self.beta * error

        self.trainer.learn(obs, loss_of)

    def _features(self, obs: Tensor, moments: RunningMoments) -> Tensor:
        chunks = obs.split(self._step)
        return torch.cat([self.encoder(self.whiten(chunk, moments)) for chunk in chunks])

    def _forward_errors(self, phi: Tensor, actions: Tensor, phi_next: Tensor) -> Tensor:
        inputs = torch.cat([phi, self.actions.features(actions)], dim=1)
        return 0.5 * (self.forward_model(inputs) - phi_next).square().sum(1)
