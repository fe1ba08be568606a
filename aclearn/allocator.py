"""An allocator that keeps its pages."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_KEEP_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed blocks up to 1 GiB instead of handing their pages back.

    A training step allocates and frees the same tens of megabytes every time; without this each
    one is mapped, faulted in page by page and unmapped again, 15–30 % of a step on a CPU.

    Returns:
        Whether it took effect (glibc only).
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    taken = [libc.mallopt(option, _KEEP_BYTES) for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD)]
    return all(taken)
