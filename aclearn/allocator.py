"""An allocator that keeps its pages."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # <malloc.h>
_KEEP_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed blocks up to 1 GiB instead of handing their pages back.

    A training step allocates and frees the same tens of megabytes every time; without this each
    one is mapped, faulted in page by page and unmapped again, 15–30 % of a step on a CPU. Only the
    main arena keeps its pages, so all threads shall use it: call this before they start.

    Returns:
        Whether it took effect (glibc only).
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    options = {_M_MMAP_THRESHOLD: _KEEP_BYTES, _M_TRIM_THRESHOLD: _KEEP_BYTES, _M_ARENA_MAX: 1}
    return all([libc.mallopt(option, value) for option, value in options.items()])
