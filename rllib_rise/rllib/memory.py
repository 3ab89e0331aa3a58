"""What a learner's process does with memory that it has freed."""

from __future__ import annotations

import ctypes
import os
import platform

# Parameters of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 2**30
_OWN_MAPPING_BYTES = 2**28


def keep_freed_memory() -> bool:
    """Let glibc keep up to 1 GB of freed memory for what is allocated next.

    By default it gives the megabytes of every layer's activations back to the system, which then
    has to clear and map them again for the next layer.

    Nothing is changed where there is another C library, or where the user has tuned this one by
    environment variables.

    Returns:
        Whether it was done.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # Either of them fixes the other's default, so that one alone may be worse than none.
    return bool(
        mallopt(_MMAP_THRESHOLD, _OWN_MAPPING_BYTES) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    )
