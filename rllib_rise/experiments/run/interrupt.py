"""Ctrl-C, and a request to end, that wait for a good moment."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_SECONDS = 1.0


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """While active, the first Ctrl-C or SIGTERM only sets the event; a second one interrupts.

    Batch systems and Kubernetes send SIGTERM some time before they take a machine away. Where they
    send it to a process and to its children, it may arrive twice: that counts as once.
    """
    asked = threading.Event()
    first = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not asked.is_set():
            first = time.monotonic()
            asked.set()
        elif time.monotonic() - first > _SAME_SECONDS:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield asked  # signals are the main thread's
        return
    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
