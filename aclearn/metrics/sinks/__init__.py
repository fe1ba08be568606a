"""Sinks, which take a run's metrics elsewhere: ours, and classes of the user's."""

from __future__ import annotations

from aclearn.metrics.sinks.sink import MetricsSink, SinkRun
from aclearn.metrics.sinks.sink_set import SINKS, SinkSet, load_sinks

__all__ = ["SINKS", "MetricsSink", "SinkRun", "SinkSet", "load_sinks"]
