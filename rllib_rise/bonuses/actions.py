"""Actions as inputs of a network, and as what a network predicts."""

from __future__ import annotations

import math

import gymnasium as gym
import torch
from torch import Tensor
from torch.nn import functional

from rllib_rise.errors import ConfigError

_LOG_DEVIATION = (-5.0, 2.0)


class Actions:
    """How actions of a space go in and out of networks.

    Discrete ones go in as one-hot vectors and are predicted by logits; continuous ones go in as
    they are and are predicted by a Gaussian: a mean and a log deviation each.

    Attributes:
        size: Numbers that an action is as an input.
        dimensions: Numbers that it consists of.
        outputs: Numbers that a prediction consists of.
    """

    def __init__(self, space: gym.Space | None, method: str) -> None:
        self._choices: tuple[int, ...] | None
        self._start = torch.zeros(0)
        if isinstance(space, gym.spaces.Discrete):
            self._choices, self._start = (int(space.n),), torch.tensor([int(space.start)])
        elif isinstance(space, gym.spaces.MultiDiscrete):
            self._choices = tuple(int(n) for n in space.nvec.flatten())
            self._start = torch.as_tensor(space.start.flatten())
        elif isinstance(space, gym.spaces.Box):
            self._choices = None
        else:
            raise ConfigError(
                f"method {method!r} reads actions, and knows Discrete, MultiDiscrete and Box; the "
                f"action space is {space}: choose a method that does not, such as rise or rnd"
            )
        if self._choices is None:
            assert isinstance(space, gym.spaces.Box)
            self.size = self.dimensions = math.prod(space.shape)
            self.outputs = 2 * self.size
        else:
            self.size = self.outputs = sum(self._choices)
            self.dimensions = len(self._choices)

    def features(self, actions: Tensor) -> Tensor:
        """`[N, ...]` actions as `[N, size]`."""
        if self._choices is None:
            return actions.reshape(len(actions), self.size).float()
        indices = self._indices(actions)
        parts = [functional.one_hot(indices[:, i], n) for i, n in enumerate(self._choices)]
        return torch.cat(parts, dim=1).float()

    def surprise(self, predicted: Tensor, actions: Tensor) -> Tensor:
        """-log p(a) of `[N, outputs]` predictions, `[N]`."""
        if self._choices is None:
            mean, log_deviation = predicted.chunk(2, dim=1)
            log_deviation = log_deviation.clamp(*_LOG_DEVIATION)
            scaled = (self.features(actions) - mean) * torch.exp(-log_deviation)
            constant = 0.5 * math.log(2 * math.pi)
            return (0.5 * scaled.square() + log_deviation + constant).sum(1)
        indices, total = self._indices(actions), predicted.new_zeros(len(predicted))
        for i, logits in enumerate(predicted.split(list(self._choices), dim=1)):
            total = total + functional.cross_entropy(logits, indices[:, i], reduction="none")
        return total

    def _indices(self, actions: Tensor) -> Tensor:
        assert self._choices is not None
        columns = actions.reshape(len(actions), len(self._choices)).long()
        return columns - self._start.to(columns.device)
