"""Decisions of the monitor: when a run ends, which worker counts it has."""

from __future__ import annotations

from aclearn.control.stop_condition import Goal

__all__ = [
    "Goal",
]
