"""Timers, rates and clocks; imports nothing of ours."""

from __future__ import annotations

from aclearn.telemetry.labels import OTHER_WORKERS
from aclearn.telemetry.thread_meters import ThreadMeters, add_up, measure_here, part, waiting
from aclearn.telemetry.wait_meter import BusyShare, WaitMeter, shares

__all__ = [
    "OTHER_WORKERS",
    "BusyShare",
    "ThreadMeters",
    "WaitMeter",
    "add_up",
    "measure_here",
    "part",
    "shares",
    "waiting",
]
