"""The identity: distances are taken between the observations themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from rllib_rise.encoders.base import Encoder


class IdentityEncoder(Encoder):
    """Flattens; bytes are scaled to [0, 1]. What the paper does for vector observations."""

    kind = "identity"

    def __init__(self, obs_shape: Sequence[int]) -> None:
        super().__init__()
        self.obs_shape = tuple(obs_shape)
        self.embedding_size = max(1, math.prod(self.obs_shape))

    def encode(self, obs: Tensor) -> Tensor:
        """Flatten to `[n, embedding_size]`."""
        return obs.reshape(len(obs), self.embedding_size)

    def forward(self, obs: Tensor) -> Tensor:
        """Flatten all at once; nothing is gained by chunks."""
        return self.encode(self._prepare(obs))
