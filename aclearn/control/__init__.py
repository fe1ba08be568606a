"""Decisions of the monitor: the end of a run, and directives of its plug-ins to the roles."""

from __future__ import annotations

from aclearn.control.plugin import (
    Directive,
    Indicators,
    MemberIndicators,
    MonitorPlugin,
    Note,
    Payload,
)
from aclearn.control.stop_condition import StopCondition
from aclearn.control.strategies import Decision, Moment, Strategy
from aclearn.wire import SaveBest, SetActors, SetChain, SetMix, SetWorkers, StopRole, StopRun

__all__ = [
    "Decision",
    "Directive",
    "Indicators",
    "MemberIndicators",
    "Moment",
    "MonitorPlugin",
    "Note",
    "Payload",
    "SaveBest",
    "SetActors",
    "SetChain",
    "SetMix",
    "SetWorkers",
    "StopCondition",
    "StopRole",
    "StopRun",
    "Strategy",
]
