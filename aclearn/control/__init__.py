"""Decisions of the monitor: when a run ends, which worker counts it has."""

from __future__ import annotations

from aclearn.control.stop_condition import StopCondition

__all__ = [
    "StopCondition",
]
