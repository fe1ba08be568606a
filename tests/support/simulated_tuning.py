"""A simulated run for the tuner: its counter grows by the rate of the counts."""

from __future__ import annotations

import random

from aclearn.config import TunerConfig
from aclearn.control.tuner.tuner import Tuner


class Run:
    """A run with a simulated clock: its counter grows by the rate of the running counts."""

    def __init__(self, rate, start=None, most=None, **changes) -> None:
        self.now, self.counter, self.rate = 0.0, 0.0, rate
        start = start or {"predictors": 1, "trainers": 1}
        settings = {"every_s": 10.0, "settle_s": 2.0, "temperature": 0.0} | changes
        most = most or dict.fromkeys(start, 4)
        self.tuner = Tuner(start, most, TunerConfig(**settings), random.Random(7))
        self.hint: str | None = None
        self.incarnation, self.deaths = "t", 0
        self.running: dict[str, int] | None = None  # set: the running counts, whatever is wanted
        self.decisions: list = []
        self.path: list[dict[str, int]] = []

    def sample(self, seconds: float = 0.5) -> list:
        wanted = self.tuner.propose()
        running = wanted if self.running is None else self.running
        self.now += seconds
        self.counter += seconds * self.rate(running)
        decision = self.tuner.observe(
            self.now,
            round(self.counter),
            running,
            incarnation=self.incarnation,
            deaths=self.deaths,
            hint=self.hint,
        )
        self.path.append(wanted)
        decided = [] if decision is None else [decision]
        self.decisions += decided
        return decided

    def go_on(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.sample()

    def until(self, verdict: str):
        for _ in range(5000):
            for decision in self.sample():
                if decision.verdict == verdict:
                    return decision
        raise AssertionError(f"never {verdict}: {[d.verdict for d in self.decisions]}")


def hill(best=(3, 2)):
    def rate(counts) -> float:
        p, t = counts.get("predictors", 1), counts.get("trainers", 1)
        return 1000.0 - 150.0 * abs(p - best[0]) - 150.0 * abs(t - best[1])

    return rate
