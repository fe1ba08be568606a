"""Indicators from outside the packages: two valid ones, and some that break the contract."""

from __future__ import annotations

import math

from aclearn.metrics.indicators import Indicator


class BestStreak(Indicator):
    """Longest series of episodes whose return was at least `least`."""

    names = ("best_streak", "streak")

    def __init__(self, least):
        self.least, self.streak, self.best = least, 0, 0

    def observe(self, run):
        for episode in run.episodes:
            self.streak = self.streak + 1 if episode.return_ >= self.least else 0
            self.best = max(self.best, self.streak)
        return {"best_streak": float(self.best), "streak": float(self.streak)}


class EntropyPerStep(Indicator):
    """Reads a metric of the trainer, and one of the previous indicator."""

    names = ("entropy_per_streak",)

    def observe(self, run):
        if "entropy" not in run.line:
            return {}
        return {"entropy_per_streak": run.line["entropy"] / (1.0 + run.line["streak"])}


class Gives(Indicator):
    names = ("given",)

    def __init__(self, value=math.nan, name="given"):
        self.value, self.name = value, name

    def observe(self, run):
        return {self.name: self.value}


class Named(Indicator):
    def __init__(self, names):
        self.names = names

    def observe(self, run):
        return {name: 1.0 for name in self.names}
