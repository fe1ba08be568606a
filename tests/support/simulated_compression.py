"""A run whose metrics follow from the rung and the share of unrolls that strategies set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aclearn.control import Directive, Indicators, Note, SetChain, SetMix, Strategy
from aclearn.control.decision_log import DecisionLog
from aclearn.control.strategies.strategy_plugin import StrategyPlugin
from aclearn.runs import read_metrics

#: Metrics by time, rung and share of unrolls in force.
World = Callable[[float, int, float], Mapping[str, Any]]


def indicators(time_s: float, line: Mapping[str, Any]) -> Indicators:
    return Indicators(time_s, line, (), (), 0, {})


class SimulatedRun:
    """A monitor with one strategy; compressors and actors follow its directives after a second.

    Attributes:
        changes: time and setting of each directed change.
        path: of the log of decisions.
    """

    def __init__(
        self,
        folder: Path,
        strategy: Callable[[], Strategy],
        world: World,
        *,
        rungs: int = 2,
        dwell_s: float = 10.0,
        tells_rung: bool = True,
    ) -> None:
        self.path, self._make, self._world = folder / "strategies.jsonl", strategy, world
        self._rungs, self._dwell_s, self._tells_rung = rungs, dwell_s, tells_rung
        self.now, self.rung, self.share = 0.0, 0, 1.0
        self._due: list[tuple[float, SetChain | SetMix]] = []
        self.changes: list[tuple[float, float]] = []
        self.notes: list[str] = []
        self.start_monitor()
        self.setting = self.plugin.setting

    def start_monitor(self) -> None:
        """Start a monitor that continues from the log and replaces an earlier one."""
        lines = read_metrics(self.path) if self.path.exists() else []
        self.plugin = StrategyPlugin(
            "s",
            self._make(),
            rungs=self._rungs,
            dwell_s=self._dwell_s,
            log=DecisionLog(self.path),
            last=lines[-1] if lines else {},
        )

    def line(self) -> dict[str, Any]:
        rung = {"compressor_rung": float(self.rung)} if self._tells_rung else {}
        figures = self._world(self.now, self.rung, self.share)
        return {"time_s": self.now, "env_steps": int(100 * self.now), **rung, **figures}

    def look(self) -> list[Directive]:
        directives = list(self.plugin.observe(indicators(self.now, self.line())))
        for directive in directives:
            payload = directive.payload
            if isinstance(payload, Note):
                self.notes.append(payload.text)
                continue
            assert isinstance(payload, SetChain | SetMix)
            self._due.append((self.now + 1.0, payload))
            setting = payload.rung if isinstance(payload, SetChain) else payload.compressed_share
            if setting != self.setting:
                self.setting = setting
                self.changes.append((self.now, setting))
        return directives

    def go_on(self, seconds: float, every_s: float = 0.5) -> None:
        """Let time pass, with a look and a new line each half second."""
        end = self.now + seconds
        while self.now < end:
            for due_s, payload in [entry for entry in self._due if entry[0] <= self.now]:
                self._due.remove((due_s, payload))
                if isinstance(payload, SetChain):
                    self.rung = payload.rung
                else:
                    self.share = payload.compressed_share
            self.look()
            self.now += every_s

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]
