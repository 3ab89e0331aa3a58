"""A command that begins again from its last checkpoint when its process, or one of its own, dies.

The command runs in a child process. A child that was killed, or that says by its exit code that it
has lost a process, is started again with `--resume`, a bounded number of times.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

LOST = 75
"""The exit code of a command that lost a process: EX_TEMPFAIL, try again."""

_CHILD = "RISE_RESTARTED_BY"
_STDIN = 0
_PAUSE_SECONDS = 5.0


def is_child() -> bool:
    """Whether this process is the one to do the work."""
    return os.environ.get(_CHILD) == str(os.getppid())


def die_with_parent() -> None:
    """End this process when the one that restarts it is gone: nobody would know of it."""

    def wait() -> None:
        while os.read(_STDIN, 1):  # nobody writes there: it ends with the parent
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def run_with_restarts(
    arguments: Sequence[str],
    restarts: int,
    tell: Callable[[str], None],
    *,
    pause: float = _PAUSE_SECONDS,
) -> int:
    """Run `rise` with these arguments, and again if it dies; the last exit code.

    A request to stop (SIGTERM) is passed on, and ends it all. Ctrl-C reaches the child by itself.
    """
    stopping = threading.Event()
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        stopping.set()
        if child is not None:
            child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, lambda number, frame: stopping.set())
    arguments = list(arguments)
    for left in range(restarts, -1, -1):
        child = subprocess.Popen(
            [sys.executable, "-m", "rllib_rise.cli", *arguments],
            stdin=subprocess.PIPE,
            env={**os.environ, _CHILD: str(os.getpid())},
        )
        if stopping.is_set():  # it came while the child was being started
            child.send_signal(signal.SIGTERM)
        code = child.wait()
        died = code < 0 or code == LOST
        if not died or stopping.is_set() or left == 0:
            break
        why = f"was killed by signal {-code}" if code < 0 else "has lost a process"
        tell(f"the run {why}; it goes on from its last checkpoint ({left} restarts left)")
        if "--resume" not in arguments:
            arguments.append("--resume")
        if stopping.wait(pause):
            break
    return code if code >= 0 else 128 - code
