"""How many processor cores there are for us."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Processor cores that this process and its children may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
