"""Sinks: classes of the user that take a run's metrics elsewhere."""

from __future__ import annotations

from aclearn.metrics.sinks.sink import MetricsSink, SinkRun
from aclearn.metrics.sinks.sink_set import SinkSet, load_sinks

__all__ = ["MetricsSink", "SinkRun", "SinkSet", "load_sinks"]
