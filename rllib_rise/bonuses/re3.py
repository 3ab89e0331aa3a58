"""RE3: random encoders for efficient exploration (Seo et al. 2021)."""

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
    """r_hat(s_t) = log(1 + rho_t), rho_t the distance to the k-th neighbour in a random embedding.

    RE3 looks for neighbours in the replay buffer off-policy and in the batch on-policy; here the
    batch is the particle set always.
    """

    name = "re3"
    Settings = RE3Settings

    def _reward(self, distances: Tensor) -> Tensor:
        return distances[:, -1].log1p()
