"""Metrics, the account of steps, waits, and the ways to look at a run."""

from __future__ import annotations

from aclearn.monitoring.registry import Member, Registry

__all__ = [
    "Member",
    "Registry",
]
