"""Monitor plug-ins from outside the packages: one changes two counts, the other one fails."""

from __future__ import annotations

from aclearn.control import Directive, MonitorPlugin, SetActors, SetWorkers


class MoreWhenItLearns(MonitorPlugin):
    """Sets other counts after a number of learned steps."""

    def __init__(self, after_steps):
        self.after_steps, self.learned = after_steps, 0

    def observe(self, indicators):
        for heartbeat in indicators.heartbeats:
            if heartbeat.role == "trainer":
                self.learned = heartbeat.counters["learned_steps"]
        if self.learned < self.after_steps:
            return []
        cause = {"learned_steps": self.learned, "actors": len(indicators.of_role("actor"))}
        return [
            Directive("trainer", SetWorkers(2), cause),
            Directive("supervisor", SetActors(3), cause),
        ]

    def gauges(self):
        return {"seen_steps": float(self.learned)}


class Broken(MonitorPlugin):
    def observe(self, indicators):
        return indicators.nothing_of_that_name
