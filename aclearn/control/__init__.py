"""Decisions of the monitor: the end of a run, and directives of its plug-ins to the roles."""

from __future__ import annotations

from aclearn.control.directives import (
    DIRECTIVES,
    Note,
    Payload,
    SaveBest,
    SaveCheckpoint,
    SetActors,
    SetChain,
    SetEntropyCost,
    SetLearningRate,
    SetMix,
    SetWorkers,
    StopRole,
    StopRun,
    obey,
)
from aclearn.control.plugin import Directive, Indicators, MemberIndicators, MonitorPlugin
from aclearn.control.stop_condition import EARLY_STOP, StopCondition
from aclearn.control.strategies import Decision, Moment, Strategy

__all__ = [
    "DIRECTIVES",
    "EARLY_STOP",
    "Decision",
    "Directive",
    "Indicators",
    "MemberIndicators",
    "Moment",
    "MonitorPlugin",
    "Note",
    "Payload",
    "SaveBest",
    "SaveCheckpoint",
    "SetActors",
    "SetChain",
    "SetEntropyCost",
    "SetLearningRate",
    "SetMix",
    "SetWorkers",
    "StopCondition",
    "StopRole",
    "StopRun",
    "Strategy",
    "obey",
]
