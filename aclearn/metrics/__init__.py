"""Metrics of a run: names, aggregation, the bottleneck, TensorBoard."""

from __future__ import annotations

from aclearn.metrics.aggregator import MetricsAggregator
from aclearn.metrics.bottleneck import (
    Bottleneck,
    SteadyBottleneck,
    find_bottleneck,
    queue_fills,
)
from aclearn.metrics.dropped import dropped_words, nothing_learned
from aclearn.metrics.names import (
    CHAIN_STEPS,
    EPISODES_FOR_TARGET,
    FREE_CORES,
    INFO,
    METRIC_NAMES,
    PART_SECONDS,
    TUNER_FROZEN,
    TUNER_TEMPERATURE,
)
from aclearn.metrics.notes import LineNotes, refusals, unwritten
from aclearn.metrics.tensorboard import TensorBoardWriter

__all__ = [
    "CHAIN_STEPS",
    "EPISODES_FOR_TARGET",
    "FREE_CORES",
    "INFO",
    "METRIC_NAMES",
    "PART_SECONDS",
    "TUNER_FROZEN",
    "TUNER_TEMPERATURE",
    "Bottleneck",
    "LineNotes",
    "MetricsAggregator",
    "SteadyBottleneck",
    "TensorBoardWriter",
    "dropped_words",
    "find_bottleneck",
    "nothing_learned",
    "queue_fills",
    "refusals",
    "unwritten",
]
