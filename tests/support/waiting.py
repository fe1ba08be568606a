"""Waits of tests: each has a deadline, and a busy machine breaks none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds for what cannot look at the load while it waits: only what hangs takes so long.
DEADLINE_S = 300.0
#: Multiplies every other deadline at least, for a machine that is slow.
PATIENCE = float(os.environ.get("ACLEARN_TEST_PATIENCE", "1"))
_CORES = os.cpu_count() or 1


def patience() -> float:
    """Multiplies deadlines: 1 on a quiet machine, more where processes queue for its cores."""
    return max(PATIENCE, os.getloadavg()[0] / _CORES)


def _running() -> int:
    """Threads that run or wait for a core at this moment."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])


def wait_for(
    condition: Callable[[], T | None],
    what: str,
    *,
    within_s: float = 60.0,
    context: Callable[[], str] = str,
    pause_s: float = 0.02,
) -> T:
    """The first true value of `condition`; fails when `within_s` (times patience) pass without.

    The load average follows a load that has just begun too late. So the threads that compete for
    the cores are counted at each look.
    """
    begun_at, looks, running = time.monotonic(), 0, 0
    while True:
        value = condition()
        if value:
            return value
        looks, running = looks + 1, running + _running()
        waited_s = time.monotonic() - begun_at
        if waited_s > within_s * max(patience(), running / looks / _CORES):
            raise AssertionError(f"not within {waited_s:.1f} s: {what}\n{context()}")
        time.sleep(pause_s)


def run_python(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, to its end."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, **options)
