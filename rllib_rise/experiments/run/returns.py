"""Episode returns over a stretch of training, weighted as they should be.

RLlib reports the mean of the episodes that ended within one iteration. Iterations are no equals:
where environments start together, most iterations see a few early successes end, and one in a
while all the failures. So means are kept with their numbers of episodes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

RECENT_EPISODES = 100


def mean_return(rows: Iterable[Mapping[str, float | None]]) -> float | None:
    """The mean return of all episodes that ended in these rows; None if none did."""
    episodes, total = 0.0, 0.0
    for row in rows:
        episodes += row.get("episodes") or 0
        total += row.get("return_sum") or 0
    return total / episodes if episodes else None


class RecentReturns:
    """The mean over the last iterations that saw at least a hundred episodes end."""

    def __init__(self, rows: Iterable[Mapping[str, float | None]] = ()) -> None:
        self._rows: deque[Mapping[str, float | None]] = deque()
        self._episodes = 0.0
        for row in rows:
            self._push(row)

    def add(self, row: dict[str, float]) -> None:
        """Give the row `return_sum`, and turn its `episode_return_mean` into the recent mean."""
        mean = row.pop("episode_return_mean", math.nan)
        episodes = row.setdefault("episodes", 0.0)
        row["return_sum"] = mean * episodes if episodes and math.isfinite(mean) else 0.0
        self._push(row)
        recent = mean_return(self._rows)
        if recent is not None:
            row["episode_return_mean"] = recent

    def _push(self, row: Mapping[str, float | None]) -> None:
        if not row.get("episodes"):
            return  # or iterations would be kept for ever where no episode ends
        self._rows.append(row)
        self._episodes += row.get("episodes") or 0
        while self._episodes - (self._rows[0].get("episodes") or 0) >= RECENT_EPISODES:
            self._episodes -= self._rows.popleft().get("episodes") or 0
