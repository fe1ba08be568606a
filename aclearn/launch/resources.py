"""Memory, open files and priority of a process."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import sys
from pathlib import Path

_LOGGER = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # <malloc.h>
_KEEP_BYTES = 1 << 30
_AUTOGROUP = Path("/proc/self/autogroup")
#: Enough for the most processes of a run: a trainer has two connections to each.
_ENOUGH_FILES = 1 << 16


def keep_freed_memory() -> bool:
    """Make glibc keep freed blocks up to 1 GiB instead of returning their pages.

    A training step allocates and frees the same tens of megabytes each time; mapping them again
    takes 15–30 % of a step on a CPU. Only the main arena keeps its pages, so call this before any
    thread starts: then all threads use it.

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


def allow_many_connections() -> None:
    """Raise this process's limit of open files to the system's maximum.

    The usual 1 024 are too few for a trainer with 500 actors; ZeroMQ would silently retry forever.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def lower_priority(nice: int) -> None:
    """Lower this process's priority by `nice` (0 to 19).

    A role of `aclearn train` leads a session of its own, and Linux with autogroup scheduling
    balances between sessions. The group's niceness is therefore set too, where the kernel has
    groups and allows it. A role that was started by hand shares its shell's session, which stays as
    it is.
    """
    if nice == 0:
        return
    os.nice(nice)
    if os.getsid(0) != os.getpid() or not _AUTOGROUP.exists():
        return
    try:
        _AUTOGROUP.write_text(str(nice))
    except OSError as error:
        _LOGGER.warning("event=autogroup_not_set nice=%d reason=%r", nice, error.strerror)
