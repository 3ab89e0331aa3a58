"""RISE: Rényi state entropy maximisation (Yuan, Pun, Wang 2022)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rllib_rise.bonuses.moments import RunningMoments
from rllib_rise.bonuses.protocol import Transitions
from rllib_rise.bonuses.registry import register_bonus
from rllib_rise.bonuses.state_entropy import StateEntropyBonus, StateEntropySettings
from rllib_rise.entropy import check_alpha, intrinsic_dimension, renyi_reward
from rllib_rise.errors import ConfigError


class RISESettings(StateEntropySettings):
    """Settings of RISE; names are the paper's."""

    alpha: float = Field(0.1, description="Order of the Rényi entropy.")
    form: Literal["paper", "box-cox", "intrinsic-dim"] = Field(
        "paper", description="How a distance becomes a reward."
    )

    @model_validator(mode="after")
    def _check(self) -> RISESettings:
        check_alpha(self.alpha, self.form)
        if self.form == "intrinsic-dim" and self.k < 2:
            raise ConfigError(
                f"form='intrinsic-dim' estimates a dimension from the distances to several "
                f"neighbours: k={self.k} must be at least 2"
            )
        return self


@register_bonus
class RISE(StateEntropyBonus):
    """r_hat(s_t) from rho_t, the distance of s_t's embedding to its k-th neighbour in the batch.

    1. y_t = encoder(s_t)
    2. rho_t = || y_t - k-th nearest of the others ||
    3. `paper`: rho^(1-alpha); `box-cox`: (rho^(1-alpha) - 1) / (1-alpha); `intrinsic-dim`:
       exp((1-alpha) d (log rho - c)) with d the intrinsic dimension of the data and c the mean of
       log rho. d, c and the floor of `box-cox` are running means over the batches before this one:
       with the batch's own mean, spreading wider would earn nothing.
    """

    name = "rise"
    Settings = RISESettings

    def __init__(self, settings: Any, obs_shape: tuple[int, ...], *, seed: int = 0) -> None:
        super().__init__(settings, obs_shape, seed=seed)
        self.entropy_order = settings.alpha
        self.log_distance = RunningMoments()
        self.inverse_dimension = RunningMoments()

    def _reward(self, distances: Tensor) -> Tensor:
        alpha, form = self.settings.alpha, self.settings.form
        if form == "paper":
            return renyi_reward(distances, alpha=alpha)
        if form == "box-cox":
            return renyi_reward(distances, alpha=alpha, form=form, floor=self.floor)
        center, dimension = self.log_distance.mean, 1 / self.inverse_dimension.mean
        if self.log_distance.count == 0:
            logs, inverse = self._geometry(distances)
            center = logs.mean() if len(logs) else center
            dimension = 1 / inverse
        return renyi_reward(
            distances, alpha=alpha, form=form, dimension=dimension, log_center=center
        )

    def _geometry(self, distances: Tensor) -> tuple[Tensor, Tensor]:
        """Log rho of the particles that can tell, and the inverse intrinsic dimension.

        Duplicates cannot, nor those with fewer than k others, which repeat their last distance.
        """
        assert self._usable is not None
        usable = distances[self._usable & (distances[:, -1] > 0)]
        return usable[:, -1].double().log(), 1 / intrinsic_dimension(usable).double()

    @torch.no_grad()
    def update(self, batch: Transitions) -> None:
        """Take the batch into the running means that the reward forms use."""
        super().update(batch)
        if self.settings.form != "intrinsic-dim" or self._distances is None:
            return
        logs, inverse = self._geometry(self._distances)
        self.log_distance.update(logs)
        self.inverse_dimension.update(inverse.expand(len(logs)))

    def metrics(self) -> dict[str, float]:
        """Those of every k-NN bonus, and the intrinsic dimension where it is used."""
        figures = super().metrics()
        if self.settings.form == "intrinsic-dim" and self.inverse_dimension.count > 0:
            figures["rise_intrinsic_dimension"] = float(1 / self.inverse_dimension.mean)
        return figures
