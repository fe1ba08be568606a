"""The contract of a strategy: a metrics line in, a decision out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aclearn.control.directives import SetChain, SetMix


@dataclass(frozen=True)
class Moment:
    """A metrics line, and the setting in force.

    Attributes:
        setting: the strategy's last setting: a rung, or a share of unrolls.
        rungs: number of rungs of the ladder; 0 is the most compressed one.
    """

    time_s: float
    line: Mapping[str, Any]
    setting: float
    rungs: int

    @property
    def rung(self) -> int:
        """The setting of a strategy that sets the rung."""
        return int(self.setting)

    @property
    def top(self) -> int:
        """The most faithful rung."""
        return self.rungs - 1

    def number(self, name: str) -> float | None:
        """A metric of the line; None if missing or not a finite number."""
        value = self.line.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Decision:
    """A new setting.

    Attributes:
        setting: the rung, or the share of unrolls that the compressed policy plays.
        cause: the numbers that caused it, for the log and the plots.
    """

    setting: float
    cause: Mapping[str, Any] = field(default_factory=dict)


class Strategy:
    """Decides by the metrics how the actors' policy is compressed. Pure: no clock, no socket.

    Attributes:
        sets: `SetChain` for a strategy that sets the rung, `SetMix` for one that sets the share of
            unrolls that actors play with the compressed policy.
        start: the setting before the first decision.
        indicators: the metrics that it requires.
    """

    sets: ClassVar[type[SetChain] | type[SetMix]] = SetChain
    start: ClassVar[float] = 0
    indicators: tuple[str, ...] = ()

    def decide(self, moment: Moment) -> Decision | None:
        """The decision on a new line; None for no change.

        Not called within the strategy's minimum dwell after its last change.
        """
        raise NotImplementedError

    def faults(self, rungs: int) -> list[str]:
        """Reasons why it cannot work on a ladder with this many rungs, each a sentence."""
        return []

    def state(self) -> Mapping[str, Any]:
        """The state for the next monitor, besides the setting; JSON-able, and changes rarely."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of an earlier monitor; may raise if it is invalid."""

    def gauges(self) -> Mapping[str, float]:
        """Numbers for the metrics line, which has them as `strategy_<name>`."""
        return {}


class HeldFor:
    """How long a condition has held without a break, for one setting."""

    def __init__(self) -> None:
        self._since: tuple[float, float] | None = None

    def seconds(self, holds: bool, moment: Moment) -> float | None:
        """Seconds so far; None if it does not hold."""
        if not holds:
            self._since = None
        elif self._since is None or self._since[0] != moment.setting:
            self._since = moment.setting, moment.time_s
        return None if self._since is None else moment.time_s - self._since[1]
