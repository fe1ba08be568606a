"""What a strategy sees, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aclearn.wire import SetChain, SetMix


@dataclass(frozen=True)
class Moment:
    """A metrics line, and what is in force.

    Attributes:
        time_s: seconds of the run.
        line: the metrics; docs/metrics.md has the names.
        setting: what the strategy has set: a rung, or a share of unrolls.
        rungs: how many rungs the ladder of chains has; 0 is the most compressed one.
    """

    time_s: float
    line: Mapping[str, Any]
    setting: float
    rungs: int

    @property
    def rung(self) -> int:
        """What a strategy has set that sets the rung."""
        return int(self.setting)

    @property
    def top(self) -> int:
        """The most faithful rung."""
        return self.rungs - 1

    def number(self, name: str) -> float | None:
        """A figure of the line; None where it is missing or no finite number."""
        value = self.line.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Decision:
    """What is to be in force from now on.

    Attributes:
        setting: the rung, or the share of unrolls that the compressed policy plays.
        cause: the numbers that it follows from, for the log and the plots.
    """

    setting: float
    cause: Mapping[str, Any] = field(default_factory=dict)


class Strategy:
    """Decides from the metrics how the actors' policy is compressed. Pure: no clock, no socket.

    Attributes:
        sets: `SetChain` for a strategy that sets the rung, `SetMix` for one that sets the share of
            unrolls that actors play with the compressed policy.
        start: what is in force until the first decision.
    """

    sets: ClassVar[type[SetChain] | type[SetMix]] = SetChain
    start: ClassVar[float] = 0

    @property
    def indicators(self) -> tuple[str, ...]:
        """The figures of the metrics line that it cannot do without."""
        return ()

    def decide(self, moment: Moment) -> Decision | None:
        """What follows from a new line; None where it leaves everything as it is.

        Not called before the strategy's minimum dwell since its last change is over.
        """
        raise NotImplementedError

    def faults(self, rungs: int) -> list[str]:
        """What keeps it from working on a ladder of so many rungs, each in a sentence."""
        return []

    def state(self) -> Mapping[str, Any]:
        """What the next monitor must know beside the setting; JSON-able, and changes rarely."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of an earlier monitor; may raise where it is no such state."""

    def gauges(self) -> Mapping[str, float]:
        """Numbers for the metrics line, which has them as `strategy_<name>`."""
        return {}


class HeldFor:
    """For how long a condition has held without a break, on one setting."""

    def __init__(self) -> None:
        self._since: tuple[float, float] | None = None

    def seconds(self, holds: bool, moment: Moment) -> float | None:
        """Seconds by now; None where it does not hold."""
        if not holds:
            self._since = None
        elif self._since is None or self._since[0] != moment.setting:
            self._since = moment.setting, moment.time_s
        return None if self._since is None else moment.time_s - self._since[1]
