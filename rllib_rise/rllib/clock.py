"""The clock t of lambda_t = lambda_0 (1 - kappa)^t."""

from __future__ import annotations

from collections.abc import Mapping


class Clock:
    """Counts environment steps and updates before the present batch, across restarts.

    The first update has t = 0 and so lambda_0. RLlib's lifetime counter of environment steps is
    taken as it comes; should it ever start again from a lower value, what was counted before is
    kept as an offset, so that lambda goes on where it was.
    """

    def __init__(self) -> None:
        self.updates = 0
        self.env_steps = 0
        self._offset = 0
        self._counter = 0
        #: Whether there was an update.
        self.started = False

    def tick(self, counter: int | None) -> None:
        """Begin an update; `counter` is RLlib's lifetime count with this batch, if it is known."""
        self.env_steps = self._offset + self._counter
        if self.started:
            self.updates += 1
        self.started = True
        if counter is None:
            return
        if counter < self._counter:
            self._offset += self._counter
        self._counter = counter

    def read(self, unit: str) -> int:
        """The time t in the given unit."""
        return self.updates if unit == "updates" else self.env_steps

    def get_state(self) -> dict[str, int]:
        """What a checkpoint needs."""
        return {
            "updates": self.updates,
            "env_steps": self.env_steps,
            "offset": self._offset,
            "counter": self._counter,
            "started": int(self.started),
        }

    def set_state(self, state: Mapping[str, int]) -> None:
        """Go on where the checkpoint was taken."""
        self.updates = state["updates"]
        self.env_steps = state["env_steps"]
        self._offset = state["offset"]
        self._counter = state["counter"]
        self.started = bool(state["started"])
