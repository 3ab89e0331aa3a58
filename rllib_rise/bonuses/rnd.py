"""RND: exploration by random network distillation (Burda et al. 2018).

1. A fixed random target network f and a predictor g see the next observation, whitened by running
   moments per feature (the first batch by its own) and clipped to [-5, 5].
2. The bonus is the mean squared error of g against f, divided by the running standard deviation of
   all errors so far.
3. After the batch was rewarded, g takes Adam steps on it.

Departures: the paper divides by the deviation of the discounted sum of bonuses, which needs a
filter over time per environment; the deviation of the bonus itself differs by a slowly varying
factor that lambda_0 absorbs. The paper has a second value head for the bonus with a discount of
its own and treats it as non-episodic; here the bonus is added to the reward as for all methods.
The paper collects the first moments of observations with a random agent, and trains the predictor
on a part of each batch where there are many environments; neither is done here.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rllib_rise.bonuses.inputs import Whitening, network
from rllib_rise.bonuses.learning import LearningSettings, Trainer
from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.bonuses.protocol import Bonus, Need, Transitions
from rllib_rise.bonuses.registry import register_bonus


class RNDSettings(LearningSettings):
    """Settings of random network distillation."""

    embedding_size: int = Field(128, ge=1, description="Output dimension of target and predictor.")


@register_bonus
class RND(Bonus):
    """The error of a learned copy of a random network: high where the agent has not been."""

    name = "rnd"
    Settings = RNDSettings
    logged: ClassVar = {
        "rnd_loss": "the predictor's mean error in its last pass over the batch",
    }

    def __init__(self, settings: Any, obs_shape: tuple[int, ...], *, seed: int = 0) -> None:
        super().__init__(settings, obs_shape, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        size = settings.embedding_size
        self.target = network(self.obs_shape, size, hidden_layers=0, generator=generator)
        self.predictor = network(self.obs_shape, size, hidden_layers=2, generator=generator)
        self.target.requires_grad_(False)
        self.trainer = Trainer(self.predictor.parameters(), settings, seed=seed)
        self.whiten = Whitening(self.obs_shape)
        self.error_moments = RunningMoments()
        self._errors: Tensor | None = None
        self._loss = 0.0

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """Next observations, and a predictor that learns."""
        return frozenset({Need.NEXT_OBS, Need.LEARNING})

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """Squared error on s_{t+1} over the deviation of errors."""
        errors = self.errors(batch)
        deviation = self.error_moments.std
        if not bool(deviation > 0):
            deviation = errors.double().std(correction=0)
        if not bool(deviation > 0):
            return torch.zeros_like(errors)  # nothing differs yet: nothing is newer than the rest
        return (errors / deviation).to(errors.dtype)

    @torch.no_grad()
    def errors(self, batch: Transitions) -> Tensor:
        """Squared errors on s_{t+1}, `[N]`."""
        assert batch.next_obs is not None
        moments = self.whiten.moments(batch.next_obs)
        chunks = batch.next_obs.split(self.settings.minibatch_size)
        self._errors = torch.cat([self._error(chunk, moments) for chunk in chunks])
        return self._errors

    def update(self, batch: Transitions) -> None:
        """Move the moments, then teach the predictor this batch."""
        next_obs = batch.next_obs
        assert next_obs is not None
        if self._errors is not None:
            self.error_moments.update(self._errors)
        self.whiten.update(next_obs)
        self._loss = self.trainer.learn(next_obs, lambda rows: self._error(next_obs[rows]).mean())

    def metrics(self) -> dict[str, float]:
        """The predictor's mean loss in its last pass over the batch."""
        return {"rnd_loss": self._loss}

    def _error(self, obs: Tensor, moments: RunningMoments | None = None) -> Tensor:
        x = self.whiten(obs, moments)
        return (self.predictor(x) - self.target(x)).square().mean(1)
