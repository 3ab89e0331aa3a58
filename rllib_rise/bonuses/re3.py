"""RE3: random encoders for efficient exploration (Seo et al. 2021).

1. Observations are embedded by a random network that is never trained.
2. The bonus is log(1 + rho_t), rho_t the distance of s_t's embedding to its k-th nearest neighbour
   in the batch, itself excluded.

Departures: off-policy, RE3 looks for neighbours in the whole replay buffer, and normalises the
bonus by its running deviation; here the batch is the particle set always, and `standardize` is an
option.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from rllib_rise.bonuses.registry import register_bonus
from rllib_rise.bonuses.state_entropy import StateEntropyBonus, StateEntropySettings


class RE3Settings(StateEntropySettings):
    """Settings of RE3: a random frozen encoder whatever the observations are, k = 3."""

    k: int = Field(3, ge=1, description="Which neighbour's distance counts (self excluded).")
    encoder: Literal["identity", "random"] = Field(
        "random", description="Where distances are taken; RE3's own is random."
    )


@register_bonus
class RE3(StateEntropyBonus):
    """log(1 + rho_t), rho_t the distance to the k-th neighbour in a random embedding."""

    name = "re3"
    Settings = RE3Settings

    def _reward(self, distances: Tensor) -> Tensor:
        return distances[:, -1].log1p()
