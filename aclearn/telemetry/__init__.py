"""Timers, rates and clocks; imports nothing of ours."""

from __future__ import annotations

from aclearn.telemetry.active_clock import ActiveClock
from aclearn.telemetry.rates import CounterRate, SlidingRate
from aclearn.telemetry.thread_meters import ThreadMeters, add_up, measure_here, part, waiting
from aclearn.telemetry.wait_meter import (
    OTHER_WORKERS,
    TOTAL,
    WAITING_FOR,
    WORKING,
    BusyShare,
    WaitMeter,
    shares,
)
