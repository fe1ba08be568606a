"""Monitor plug-ins from outside the packages: of counts, of rungs, and one that fails."""

from __future__ import annotations

import json
from pathlib import Path

from aclearn.control import Directive, MonitorPlugin, SetActors, SetChain, SetMix, SetWorkers


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


class SetsRung(MonitorPlugin):
    """The rung and the share that a file says, from when it is there: `{"rung": 1}`, say."""

    def __init__(self, file):
        self.file = Path(file)

    def observe(self, indicators):
        said = json.loads(self.file.read_text()) if self.file.exists() else {}
        payloads = {
            "rung": lambda rung: ("compressor", SetChain(rung)),
            "share": lambda share: ("actor", SetMix(share)),
        }
        return [Directive(*payloads[name](value), said) for name, value in said.items()]


class Broken(MonitorPlugin):
    def observe(self, indicators):
        return indicators.nothing_of_that_name
