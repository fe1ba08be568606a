"""The machine's name for the reader of a result."""

from __future__ import annotations

import platform
from pathlib import Path

from aclearn.telemetry.cores import usable_cores


def cpu_model() -> str:
    """The CPU's name."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    """CPU and usable cores of this machine, e.g. "AMD EPYC 7B13, 2 cores"."""
    cores = usable_cores()
    return f"{cpu_model()}, {cores} core{'s' if cores > 1 else ''}"
