"""Waits of tests: each has a deadline, which a busy machine extends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

#: Deadline of waits that cannot observe the load; only a hang takes so long.
DEADLINE_S = 300.0
#: Least factor of every other deadline, for a slow machine.
PATIENCE = float(os.environ.get("ACLEARN_TEST_PATIENCE", "1"))
_CORES = os.cpu_count() or 1


def patience() -> float:
    """Factor of deadlines: 1 on a quiet machine, more while processes wait for its cores."""
    return max(PATIENCE, os.getloadavg()[0] / _CORES)


def _running() -> int:
    """Number of threads that run or wait for a core now."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])


def wait_for(
    condition: Callable[[], T | None],
    what: str,
    *,
    within_s: float = 60.0,
    context: Callable[[], str] = str,
    pause_s: float = 0.02,
) -> T:
    """The first true value of `condition`; fails after `within_s` (times patience).

    The load average follows a new load too late, so the threads that compete for the cores are
    counted at each poll.
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
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, **options)
