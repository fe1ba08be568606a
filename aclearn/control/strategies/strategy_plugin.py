"""A strategy as a plug-in of the monitor: metrics in, directives out, each change on disk first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aclearn.control.decision_log import DecisionLog
from aclearn.control.directives import Note, SetChain, SetMix
from aclearn.control.plugin import Directive, Indicators, MonitorPlugin
from aclearn.control.strategies.strategy import Decision, Moment, Strategy
from aclearn.metrics.names import RUNG

_LOGGER = logging.getLogger(__name__)

#: Takes a decision, as in the log.
Show = Callable[[Mapping[str, Any]], None]


class StrategyPlugin(MonitorPlugin):
    """Calls a strategy, keeps its minimum dwell, and logs its decisions.

    A decision is in the log before it is issued, so a restarted monitor continues from it.

    Args:
        dwell_s: least time between two changes, in seconds of the run.
        log: gets the decisions; may be shared with other strategies.
        last: the strategy's newest line in the log; {} for a new run.
    """

    def __init__(
        self,
        name: str,
        strategy: Strategy,
        *,
        rungs: int,
        dwell_s: float,
        log: DecisionLog,
        last: Mapping[str, Any],
        show: Show | None = None,
    ) -> None:
        self._name, self._strategy, self._rungs, self._dwell_s = name, strategy, rungs, dwell_s
        self._log, self._show = log, show
        self._setting, self._cause = strategy.start, dict[str, Any]()
        self._changed_s: float | None = None
        self._seen_s: float | None = None
        self._notes: list[str] = []
        if last:
            self._restore(last)
        self._saved = dict(strategy.state())

    @property
    def setting(self) -> float:
        """The setting in force."""
        return self._setting

    def observe(self, indicators: Indicators) -> Sequence[Directive]:
        """Call the strategy once for each new line; its setting stays until the next one."""
        time_s = indicators.line.get("time_s")
        if time_s is not None and time_s != self._seen_s:
            self._seen_s = time_s
            self._look(Moment(time_s, indicators.line, self._setting, self._rungs))
        notes, self._notes = self._notes, []
        sets, setting = self._strategy.sets, self._setting
        payload = SetChain(int(setting)) if sets is SetChain else SetMix(float(setting))
        directive = Directive(sets.roles[0], payload, self._cause)
        return [directive, *(Directive("monitor", Note(text)) for text in notes)]

    def gauges(self) -> dict[str, float]:
        """The setting as `strategy_rung` or `strategy_compressed_share`, and the strategy's own."""
        own = {f"strategy_{name}": value for name, value in self._strategy.gauges().items()}
        return own | {f"strategy_{self._field}": float(self._setting)}

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    @property
    def _field(self) -> str:
        return "rung" if self._strategy.sets is SetChain else "compressed_share"

    def _look(self, moment: Moment) -> None:
        if self._changed_s is None or moment.time_s < self._changed_s:
            self._changed_s = moment.time_s
        if moment.time_s - self._changed_s < self._dwell_s or self._is_of_another_rung(moment):
            return
        decision = self._strategy.decide(moment) or Decision(self._setting)
        self._check(decision)
        state, changes = dict(self._strategy.state()), decision.setting != self._setting
        changed_s = moment.time_s if changes else self._changed_s
        if changes or state != self._saved:
            self._write(moment, decision, state, changed_s)
            self._saved = state
        if changes:
            self._say(decision)
            self._setting, self._cause = decision.setting, dict(decision.cause)
            self._changed_s = changed_s

    def _is_of_another_rung(self, moment: Moment) -> bool:
        """Whether the metrics are of a rung that is not in force."""
        measured = moment.number(RUNG)
        return self._strategy.sets is SetChain and measured not in (None, self._setting)

    def _check(self, decision: Decision) -> None:
        setting = decision.setting
        if self._strategy.sets is SetMix and not 0.0 <= setting <= 1.0:
            raise ValueError(f"expected a share of unrolls from 0 to 1, got {setting!r}")
        if self._strategy.sets is SetChain and setting not in range(self._rungs):
            raise ValueError(f"expected a rung from 0 to {self._rungs - 1}, got {setting!r}")

    def _say(self, decision: Decision) -> None:
        cause = ", ".join(f"{name} {_short(value)}" for name, value in decision.cause.items())
        change = f"{self._field} {_short(self._setting)} → {_short(decision.setting)}"
        text = f"strategy {self._name}: {change} ({cause})"
        self._notes.append(text)
        _LOGGER.info("event=strategy text=%r", text)

    def _write(
        self, moment: Moment, decision: Decision, state: Mapping[str, Any], changed_s: float
    ) -> None:
        line = {
            "time_s": moment.time_s,
            "env_steps": moment.line.get("env_steps", 0),
            "strategy": self._name,
            self._field: decision.setting,
            "changed_s": changed_s,
            "cause": dict(decision.cause),
            "state": state,
        }
        self._log.write(line)
        if self._show is not None:
            self._show(self._log.last_line)

    def _restore(self, last: Mapping[str, Any]) -> None:
        """Continue from a line of the log; an invalid one is logged and ignored."""
        try:
            decision = Decision(last[self._field])
            self._check(decision)
            changed_s, cause = float(last["changed_s"]), dict(last.get("cause", {}))
            self._strategy.restore(last["state"])
        # the strategy may be the user's code, and may have been another one before
        except Exception as error:
            _LOGGER.warning("event=strategy_reset name=%s reason=%r", self._name, repr(error))
            return
        self._setting, self._changed_s, self._cause = decision.setting, changed_s, cause


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
