"""How much is left of a bonus: as a multiple of what it was at first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

REWARD = "intrinsic_reward_mean"
_AT_FIRST, _LEAST_UNIT = 0.1, 0.01


def as_multiples(
    steps: Sequence[float], values: Sequence[float], budget: float
) -> list[float] | None:
    """The values over their mean in the tenth of the budget that begins with the first of them.

    A shorter time may be less than an episode, and where environments begin together so would be
    what a batch shows of it. None for a bonus around 0, such as a sum of standardised ones: it has
    no multiples.
    """
    if not values:
        return None
    end = steps[0] + _AT_FIRST * budget
    unit = float(np.mean([v for s, v in zip(steps, values, strict=True) if s <= end]))
    if unit <= _LEAST_UNIT * float(np.ptp(values)):
        return None
    return [value / unit for value in values]
