"""The part of a heartbeat that the aggregator reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class HeartbeatFields(Protocol):
    """The part of a heartbeat that the view reads; `wire.Heartbeat` is one.

    Counters and dropped are cumulative since the start of the role's incarnation (a trainer's since
    the start of the run, through its checkpoint), waits are `WaitMeter.seconds()`, episodes are
    those that ended since the heartbeat before.
    """

    @property
    def counters(self) -> Mapping[str, int]:
        """Whole numbers by name."""

    @property
    def gauges(self) -> Mapping[str, float]:
        """Latest values by name."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """Agent steps dropped, by reason."""

    @property
    def waits(self) -> Mapping[str, float]:
        """Seconds waited, by label, and "total"."""

    @property
    def parts(self) -> Mapping[str, float]:
        """Seconds of all threads by part of the work, and "total"; may be empty."""

    @property
    def note(self) -> str:
        """Of a trainer, why its last checkpoint could not be written; "" where it was."""

    @property
    def episode_returns(self) -> Sequence[float]:
        """True returns of ended episodes."""
