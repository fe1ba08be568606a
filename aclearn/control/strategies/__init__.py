"""Strategies, which adapt the compression: metrics in, a rung of the ladder or a share out."""

from __future__ import annotations

from aclearn.control.strategies.strategy import Decision, Moment, Strategy

__all__ = ["Decision", "Moment", "Strategy"]
