"""CPU cores: how many this process may use, and how many of them are free."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """CPU cores that this process may use: its affinity, limited by the container, rounded up."""
    cores = len(_affinity()) or os.cpu_count() or 1
    limit = _limit()
    return max(1, min(cores, math.ceil(limit[0]))) if limit else cores


@dataclass(frozen=True)
class CpuReading:
    """The machine's CPU time at one moment.

    Attributes:
        idle_s: idle seconds of all usable cores since some moment.
        limit: cores that the container may use; None without a limit.
        used_s: CPU seconds of the limited container since some moment.
    """

    idle_s: float
    limit: float | None = None
    used_s: float = 0.0


def read_cpu() -> CpuReading:
    """The present reading."""
    import psutil  # only the monitor needs it

    usable = _affinity()
    idle_s = sum(
        # a core that waits for a disk is free for others
        cpu.idle + getattr(cpu, "iowait", 0.0)
        for index, cpu in enumerate(psutil.cpu_times(percpu=True))
        if not usable or index in usable
    )
    return CpuReading(idle_s, *(_limit() or ()))


class FreeCores:
    """Number of this machine's usable cores that were free in the last `window_s` seconds."""

    def __init__(
        self,
        window_s: float = 10.0,
        *,
        read: Callable[[], CpuReading] = read_cpu,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._window_s, self._read, self._clock = window_s, read, clock
        self._readings: deque[tuple[float, CpuReading]] = deque()

    def look(self) -> float | None:
        """Free cores since the window began, e.g. 1.5; None at the first look, or unreadable."""
        try:
            now, new = self._clock(), self._read()
        except OSError:  # for instance too many open files: a figure is missing, nothing else
            return None
        self._readings.append((now, new))
        while len(self._readings) > 2 and self._readings[1][0] <= now - self._window_s:
            self._readings.popleft()
        since, old = self._readings[0]
        if now <= since:
            return None
        free = (new.idle_s - old.idle_s) / (now - since)
        if new.limit is not None:
            free = min(free, new.limit - (new.used_s - old.used_s) / (now - since))
        return max(0.0, free)


def _affinity() -> set[int]:
    """The cores that this process may use; empty if unknown."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _limit() -> tuple[float, float] | None:
    """The tightest limit of our control groups in cores, and the CPU seconds of that group."""
    own = PurePosixPath(_own_group())
    limits = []
    for path in (own, *own.parents):
        group = _CGROUPS / str(path).lstrip("/")
        try:
            quota, period = (group / "cpu.max").read_text().split()
            used = (group / "cpu.stat").read_text().split()
            if quota != "max":
                used_us = int(used[used.index("usage_usec") + 1])
                limits.append((int(quota) / int(period), used_us / 1e6))
        except (OSError, ValueError):
            continue  # the root has no limit, and older kernels have none of these files
    return min(limits, default=None)


def _own_group() -> str:
    """The control group (v2) of this process, "/" without one."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return "/"
    return next((line[3:] for line in lines if line.startswith("0::/")), "/")
