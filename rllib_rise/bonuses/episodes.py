"""What the episodic bonuses remember: rows of the episodes that are not over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rllib_rise.bonuses.hashing import scramble
from rllib_rise.bonuses.protocol import Transitions

# Of all episodes together: where runners are lost, episodes never end.
_MOST_ROWS = 1_000_000


class EpisodicMemory(nn.Module):
    """One row per state that an unfinished episode has visited, in the order of the visits.

    Not part of a checkpoint: after a restore all episodes begin anew, and so does the memory.

    Args:
        per_episode: How many rows of an episode are kept, the latest; all of them if None.
    """

    def __init__(self, per_episode: int | None = None) -> None:
        super().__init__()
        self._per_episode = per_episode
        self._ids: Tensor | None = None
        self._rows: Tensor | None = None

    def recall(
        self, batch: Transitions, first: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Episodes `[M]` and rows `[M, ...]` visited before the batch's transitions.

        Args:
            batch: Transitions with their episodes.
            first: Gives the rows of s_t for some transitions, by their numbers. Of episodes that
                are not in the memory, the first of them is where they began.
        """
        ids = batch.episode_ids
        assert ids is not None
        present, group = torch.unique(ids, return_inverse=True)
        begins = torch.full_like(present, len(ids))
        begins.scatter_reduce_(0, group, torch.arange(len(ids), device=ids.device), "amin")
        if self._ids is None or self._rows is None:
            return present, first(begins)
        new, known = ~torch.isin(present, self._ids), torch.isin(self._ids, present)
        return (
            torch.cat([self._ids[known], present[new]]),
            torch.cat([self._rows[known], first(begins[new])]),
        )

    def remember(
        self, batch: Transitions, first: Callable[[Tensor], Tensor], visited: Tensor
    ) -> None:
        """Add a row for each s_{t+1}, `[N, ...]`, then forget the episodes that are over."""
        ids, done = batch.episode_ids, batch.done
        assert ids is not None
        assert done is not None
        before, rows = self.recall(batch, first)
        if self._ids is not None and self._rows is not None:
            others = ~torch.isin(self._ids, ids)
            before = torch.cat([self._ids[others], before])
            rows = torch.cat([self._rows[others], rows])
        all_ids, all_rows = torch.cat([before, ids]), torch.cat([rows, visited])
        kept = ~torch.isin(all_ids, ids[done])
        if self._per_episode is not None:
            newest_first = all_ids.flip(0)
            age = visits_so_far(newest_first, torch.zeros_like(newest_first)).flip(0)
            kept &= age <= self._per_episode
        places = kept.nonzero().squeeze(1)[-_MOST_ROWS:]
        self._ids, self._rows = all_ids[places], all_rows[places]

    def __len__(self) -> int:
        return 0 if self._ids is None else len(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        held = [tensor for tensor in (self._ids, self._rows) if tensor is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._ids = self._rows = None
        super()._load_from_state_dict(*args, **kwargs)


def visits_so_far(ids: Tensor, codes: Tensor) -> Tensor:
    """How often each row's code occurs in its episode up to and with this row, `[n]`."""
    keys = scramble(scramble(ids) + codes)
    order = torch.argsort(keys, stable=True)
    ordered = keys[order]
    places = torch.arange(len(keys), device=keys.device)
    begins = torch.ones_like(keys, dtype=torch.bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    begin = torch.where(begins, places, 0).cummax(0).values
    counts = torch.empty_like(keys)
    counts[order] = places - begin + 1
    return counts
