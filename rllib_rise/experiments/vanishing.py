"""How much is left of a bonus: as a multiple of what it was at first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

REWARD = "intrinsic_reward_mean"
_AT_FIRST, _LEAST_UNIT = 0.05, 0.01


def as_multiples(
    steps: Sequence[float], values: Sequence[float], budget: float
) -> list[float] | None:
    """The values over their mean in the first twentieth of the budget.

    None for a bonus around 0, such as a standardised one: it has no multiples.
    """
    first = [v for s, v in zip(steps, values, strict=True) if s <= _AT_FIRST * budget] or values[:1]
    unit = float(np.mean(first)) if first else 0.0
    if not values or unit <= _LEAST_UNIT * float(np.ptp(values)):
        return None
    return [value / unit for value in values]
