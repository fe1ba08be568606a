"""Indicators: metrics computed from those that roles report."""

from __future__ import annotations

from aclearn.metrics.indicators.indicator import Episode, Indicator, RunSample
from aclearn.metrics.indicators.indicator_check import check_indicator
from aclearn.metrics.indicators.indicator_set import IndicatorSet, load_indicators
from aclearn.metrics.indicators.returns import ReturnSlope, RewardGap

__all__ = [
    "Episode",
    "Indicator",
    "IndicatorSet",
    "ReturnSlope",
    "RewardGap",
    "RunSample",
    "check_indicator",
    "load_indicators",
]
