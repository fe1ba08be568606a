"""Scheduling priority of a role."""

from __future__ import annotations

import logging
import os
from pathlib import Path

_LOGGER = logging.getLogger(__name__)
_AUTOGROUP = Path("/proc/self/autogroup")


def stand_back(nice: int) -> None:
    """Let other processes go first by `nice` (0 to 19) where cores are scarce.

    Linux with autogroup scheduling weighs sessions against each other and `nice` only within one;
    every role has a session of its own, so the group's niceness must be set too. Where the kernel
    knows no groups, or refuses, the process's own niceness has to do.
    """
    if nice == 0:
        return
    os.nice(nice)
    if not _AUTOGROUP.exists():
        return
    try:
        _AUTOGROUP.write_text(str(nice))
    except OSError as error:
        _LOGGER.warning("event=autogroup_not_set nice=%d reason=%r", nice, error.strerror)
