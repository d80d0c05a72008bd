"""Memory of the host that was freed, and is kept by glibc for later."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names in malloc.h
_LARGE = 2**20  # bytes


def return_freed_memory() -> None:
    """Have glibc return large blocks to the system as soon as they are freed.

    Gathered weights are freed after every layer. By default glibc raises the size from which it does so to that of the
    largest block freed so far, and keeps the others: a process then takes as much memory as with the whole model.
    Variables of the environment that set the thresholds are left alone.
    """
    if (
        not sys.platform.startswith("linux")
        or {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"} & os.environ.keys()
    ):
        return
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, _LARGE)
