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
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.bonuses.protocol import Bonus, BonusSettings, Need, Transitions
from rllib_rise.bonuses.registry import register_bonus
from rllib_rise.encoders.base import as_float, image_layout, is_image
from rllib_rise.encoders.random import conv_trunk

_CLIP = 5.0
_HIDDEN = 256
_EPSILON = 1e-8


class RNDSettings(BonusSettings):
    """Settings of random network distillation."""

    embedding_size: int = Field(128, ge=1, description="Output dimension of target and predictor.")
    lr: float = Field(1e-4, gt=0, description="Adam's step size for the predictor.")
    epochs: int = Field(4, ge=1, description="Passes of the predictor over each batch.")
    minibatch_size: int = Field(256, ge=1, description="Transitions per step of the predictor.")


@register_bonus
class RND(Bonus):
    """The error of a learned copy of a random network: high where the agent has not been."""

    name = "rnd"
    Settings = RNDSettings
    updates: Tensor

    def __init__(self, settings: Any, obs_shape: tuple[int, ...], *, seed: int = 0) -> None:
        super().__init__(settings, obs_shape, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        size = settings.embedding_size
        # Layers draw default weights from the global stream when they are made.
        with torch.random.fork_rng(devices=[]):
            self.target = _network(self.obs_shape, size, hidden_layers=0, generator=generator)
            self.predictor = _network(self.obs_shape, size, hidden_layers=2, generator=generator)
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.predictor.parameters(), lr=settings.lr)
        self.obs_moments = RunningMoments((max(1, math.prod(self.obs_shape)),))
        self.error_moments = RunningMoments()
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self._errors: Tensor | None = None
        self._loss = 0.0

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """Next observations, and a predictor that learns."""
        return frozenset({Need.NEXT_OBS, Need.LEARNING})

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """Squared error on s_{t+1} over the deviation of errors."""
        assert batch.next_obs is not None
        moments = self.obs_moments
        if moments.count == 0:
            moments = RunningMoments(moments.mean.shape).to(batch.next_obs.device)
            moments.update(_flat(batch.next_obs))
        chunks = batch.next_obs.split(self.settings.minibatch_size)
        errors = torch.cat([self._error(chunk, moments) for chunk in chunks])
        self._errors = errors
        deviation = self.error_moments.std
        if not bool(deviation > 0):
            deviation = errors.double().std(correction=0)
        if not bool(deviation > 0):
            return torch.zeros_like(errors)  # nothing differs yet: nothing is newer than the rest
        return (errors / deviation).to(errors.dtype)

    def update(self, batch: Transitions) -> None:
        """Move the moments, then teach the predictor this batch."""
        assert batch.next_obs is not None
        if self._errors is not None:
            self.error_moments.update(self._errors)
        self.obs_moments.update(_flat(batch.next_obs))
        count, step = len(batch), self.settings.minibatch_size
        # From seed and update number alone, so that a restored run draws the same order.
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + int(self.updates))
        with torch.enable_grad():
            for _ in range(self.settings.epochs):
                order = torch.randperm(count, generator=generator).to(batch.next_obs.device)
                for rows in order.split(step):
                    loss = self._error(batch.next_obs[rows], self.obs_moments).mean()
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
        self._loss = float(loss.detach())
        self.updates += 1

    def metrics(self) -> dict[str, float]:
        """The predictor's loss on the last minibatch."""
        return {"rnd_loss": self._loss}

    def _error(self, obs: Tensor, moments: RunningMoments) -> Tensor:
        x = self._whiten(obs, moments)
        return (self.predictor(x) - self.target(x)).square().mean(1)

    def _whiten(self, obs: Tensor, moments: RunningMoments) -> Tensor:
        mean, std = moments.mean.float(), moments.std.float()
        flat = ((_flat(obs) - mean) / (std + _EPSILON)).clamp(-_CLIP, _CLIP)
        if not is_image(self.obs_shape):
            return flat
        images = flat.reshape(len(obs), *self.obs_shape)
        return images if image_layout(self.obs_shape).channels_first else images.movedim(-1, 1)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Weights, moments and Adam's own moments, as one flat dict of tensors."""
        state = dict(super().state_dict(*args, **kwargs))
        for index, values in self.optimizer.state_dict()["state"].items():
            for key, value in values.items():
                state[f"optimizer.{index}.{key}"] = value
        return state

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """The inverse of `state_dict`."""
        own = {k: v for k, v in state_dict.items() if not k.startswith("optimizer.")}
        adam: dict[int, dict[str, Tensor]] = {}
        for key, value in state_dict.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".")
                # The optimizer would keep the tensor it is given, and share it with the giver.
                adam.setdefault(int(index), {})[name] = value.clone()
        current = self.optimizer.state_dict()
        self.optimizer.load_state_dict({"state": adam, "param_groups": current["param_groups"]})
        return super().load_state_dict(own, *args, **kwargs)


def _flat(obs: Tensor) -> Tensor:
    return as_float(obs).reshape(len(obs), math.prod(obs.shape[1:]))


def _network(
    obs_shape: tuple[int, ...], size: int, *, hidden_layers: int, generator: torch.Generator
) -> nn.Sequential:
    layers: list[nn.Module]
    if is_image(obs_shape):
        height, width, channels, _ = image_layout(obs_shape)
        trunk, width_in = conv_trunk(channels, height, width)
        layers = [trunk]
    else:
        layers = [nn.Linear(max(1, math.prod(obs_shape)), _HIDDEN), nn.ReLU()]
        width_in = _HIDDEN
    for _ in range(hidden_layers):
        layers += [nn.Linear(width_in, _HIDDEN), nn.ReLU()]
        width_in = _HIDDEN
    net = nn.Sequential(*layers, nn.Linear(width_in, size))
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(layer.weight, gain=math.sqrt(2), generator=generator)
            nn.init.zeros_(cast(Tensor, layer.bias))
    return net
