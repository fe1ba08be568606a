"""Sinks from outside the packages: one that writes a file, and one that fails or hangs."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from aclearn.metrics.sinks import MetricsSink


class ToFile(MetricsSink):
    """Appends every call as a JSON line to `<run folder>/<name>`."""

    def __init__(self, name="sink.jsonl"):
        self.name = name

    def open(self, run):
        self.file = Path(run.path) / self.name
        self._say("open", {"run": run.name, "resumed": run.resumed, "env": run.config["env"]["id"]})

    def write(self, line):
        self._say("write", line)

    def write_decision(self, decision):
        self._say("write_decision", decision)

    def close(self, summary):
        self._say("close", summary)

    def _say(self, call, value):
        with self.file.open("a") as file:
            file.write(json.dumps([call, value]) + "\n")


class Stubborn(MetricsSink):
    """Raises in the methods of `raises`, and waits in those of `hangs` until `go_on` is set."""

    def __init__(self, raises=(), hangs=()):
        self.raises, self.hangs = raises, hangs
        self.calls, self.entered, self.go_on = [], threading.Event(), threading.Event()

    def _call(self, name):
        self.calls.append(name)
        if name in self.hangs:
            self.entered.set()
            self.go_on.wait(60.0)
        if name in self.raises:
            raise SystemExit(f"no {name}") if name == "close" else RuntimeError(f"no {name}")

    def open(self, run):
        self._call("open")

    def write(self, line):
        line["seen"] = True  # its own copy
        self._call("write")

    def write_decision(self, decision):
        self._call("write_decision")

    def close(self, summary):
        self._call("close")
