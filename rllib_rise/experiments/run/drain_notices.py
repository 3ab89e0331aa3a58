"""Notices that a node will be taken away."""

from __future__ import annotations

import time

from ray._private.state import state

_ASK_SECONDS = 5.0


class DrainNotices:
    """Tells of nodes that are announced to go: spot instances, pods that are moved."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._asked = 0.0

    def new(self) -> bool:
        """Whether a node was announced since the last question; Ray is asked now and then."""
        if time.monotonic() - self._asked < _ASK_SECONDS:
            return False
        self._asked = time.monotonic()
        draining = set(state.get_draining_nodes())
        found = draining - self._known
        self._known |= draining
        return bool(found)
