"""What the episodic bonuses remember: rows of the episodes that are not over."""

from __future__ import annotations

import torch
from torch import Tensor

from rllib_rise.bonuses.hashing import scramble
from rllib_rise.bonuses.protocol import Transitions

# Of all episodes together; where runners are lost, episodes never end.
_MOST_ROWS = 200_000


class EpisodicMemory:
    """One row per state that an unfinished episode has visited, in the order of the visits.

    Not part of a checkpoint: after a restore all episodes begin anew.
    """

    def __init__(self) -> None:
        self._ids: Tensor | None = None
        self._rows: Tensor | None = None

    def recall(self, batch: Transitions, first: Tensor) -> tuple[Tensor, Tensor]:
        """Episodes `[M]` and rows `[M, ...]` visited before the batch's transitions.

        Args:
            batch: Transitions with their episodes.
            first: A row for each s_t of the batch, `[N, ...]`. Of episodes that are not in the
                memory the first of them is where they began.
        """
        ids = batch.episode_ids
        assert ids is not None
        known, starts = torch.unique(ids, return_inverse=True)
        rows = torch.full_like(known, len(ids))
        rows.scatter_reduce_(0, starts, torch.arange(len(ids), device=ids.device), "amin")
        if self._ids is None or self._rows is None:
            return known, first[rows]
        new = ~torch.isin(known, self._ids)
        present = torch.isin(self._ids, known)
        return (
            torch.cat([self._ids[present], known[new]]),
            torch.cat([self._rows[present], first[rows[new]]]),
        )

    def remember(self, batch: Transitions, first: Tensor, visited: Tensor) -> None:
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
        kept = (~torch.isin(all_ids, ids[done])).nonzero().squeeze(1)[-_MOST_ROWS:]
        self._ids, self._rows = all_ids[kept], all_rows[kept]

    def __len__(self) -> int:
        return 0 if self._ids is None else len(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        held = [tensor for tensor in (self._ids, self._rows) if tensor is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)


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
