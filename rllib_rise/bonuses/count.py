"""Counts: a bonus that falls with the number of visits (Strehl and Littman 2008), by hashing for
large spaces (Tang et al. 2017).

1. The next observation becomes a code. Vectors: the cell of a grid that it lies in. Images: the
   signs of its projections on random directions (SimHash), seen from the mean of the first batch:
   from the origin, a static background would decide all signs.
2. Codes are counted in a count-min sketch, several tables with a hash each: the smallest of the
   counters is never below the number of visits, and above it only where a code collides with
   another in every table.
3. The bonus is 1 / sqrt(n), n the visits up to and with this batch.

Departures: Tang et al. project observations, or learned codes of them, without centring. Strehl and
Littman count state-action pairs and add the bonus to the Bellman backup; Tang et al. count states,
as here. With replayed batches n counts replays, not visits.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rllib_rise.bonuses.hashing import cell_codes, scramble, sign_codes
from rllib_rise.bonuses.inputs import flat
from rllib_rise.bonuses.protocol import Bonus, BonusSettings, Need, Transitions
from rllib_rise.bonuses.registry import register_bonus
from rllib_rise.encoders.base import is_image

_TABLES = 3


class CountSettings(BonusSettings):
    """Settings of the count-based bonus."""

    hash: Literal["auto", "cells", "simhash"] = Field(
        "auto",
        description="What counts as one state: the cell of a grid, or signs of random "
        "projections; auto is cells for vectors, simhash for images.",
    )
    cell: float = Field(
        0.05, gt=0, description="Width of a cell, in units of the observation; bytes are 0 to 1."
    )
    bits: int = Field(32, ge=1, le=63, description="Number of random projections.")
    table_size: int = Field(65_536, ge=1, description="Counters per table of the sketch.")


@register_bonus
class Count(Bonus):
    """1 / sqrt(n(s_{t+1}))."""

    name = "count"
    Settings = CountSettings
    logged: ClassVar = {
        "count_states": "states seen, as far as the fullest table tells them apart",
    }
    tables: Tensor
    directions: Tensor
    center: Tensor

    def __init__(self, settings: Any, obs_shape: tuple[int, ...], *, seed: int = 0) -> None:
        super().__init__(settings, obs_shape, seed=seed)
        kind = settings.hash
        if kind == "auto":
            kind = "simhash" if is_image(self.obs_shape) else "cells"
        self._cells = kind == "cells"
        self.register_buffer(
            "tables", torch.zeros((_TABLES, settings.table_size), dtype=torch.int64)
        )
        if not self._cells:
            size = max(1, math.prod(self.obs_shape))
            generator = torch.Generator().manual_seed(seed)
            directions = torch.randn((size, settings.bits), generator=generator)
            self.register_buffer("directions", directions)
            self.register_buffer("center", torch.full((size,), torch.nan))
        self._after: Tensor | None = None

    @classmethod
    def needs(cls, settings: Any) -> frozenset[Need]:
        """Next observations, and counts over all batches."""
        return frozenset({Need.NEXT_OBS, Need.RUNNING})

    @torch.no_grad()
    def reward(self, batch: Transitions) -> Tensor:
        """One over the root of the visits."""
        assert batch.next_obs is not None
        places = self._places(batch.next_obs)
        self._after = self.tables.scatter_add(1, places, torch.ones_like(places))
        visits = self._after.gather(1, places).amin(0)
        return visits.double().rsqrt().float()

    def update(self, batch: Transitions) -> None:
        """Count the batch."""
        assert batch.next_obs is not None
        if self._after is not None:
            self.tables.copy_(self._after)
        if not self._cells:
            self.center.copy_(self._center(batch.next_obs))

    def metrics(self) -> dict[str, float]:
        """How many states were seen, as far as the fullest table can tell them apart."""
        return {"count_states": float((self.tables > 0).sum(1).max())}

    def _places(self, obs: Tensor) -> Tensor:
        """Where each table counts each observation, `[tables, N]`."""
        if self._cells:
            codes = cell_codes(obs, self.settings.cell)
        else:
            codes = sign_codes(obs, self.directions, self._center(obs))
        numbers = torch.arange(1, _TABLES + 1, device=codes.device)[:, None]
        return scramble(codes + scramble(numbers)) % self.settings.table_size

    def _center(self, obs: Tensor) -> Tensor:
        """The mean of the first batch, which this is if there was none before."""
        return flat(obs).mean(0) if bool(self.center.isnan().any()) else self.center
