"""A role as an object that is stepped: by the loop of its process, or in turn with other roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aclearn.telemetry import WaitMeter
from services.runtime.monitor_client import MonitorClient

#: Longest wait of a step for something to do: so often a process looks at everything else.
STEP_WITHIN_S = 0.02


class Role(Protocol):
    """One role of a run. One thread steps it and closes it."""

    def step(self, timeout_s: float) -> bool:
        """One round of the role's loop; waits up to `timeout_s` where there is nothing to do.

        Returns:
            False when the role has come to its end in order.
        """

    def close(self) -> None:
        """Let go of what the role holds; with a goodbye where it has come to its end in order."""

    @property
    def exit_status(self) -> int:
        """The status of its process, once it has come to its end in order."""


def run_to_end(role: Role) -> int:
    """Step a role until its end, as its process does; its exit status."""
    try:
        while role.step(STEP_WITHIN_S):
            pass
    finally:
        role.close()
    return role.exit_status


class MonitoredRole:
    """A role that works until the monitor, or a signal, stops it.

    Args:
        monitor: of this role.
        meter: measures the messages to and from the monitor.
        work: one round of the work; waits up to the given seconds where there is nothing to do.
        end: ends the work, whatever the reason; called before the goodbye.
    """

    def __init__(
        self,
        monitor: MonitorClient,
        meter: WaitMeter,
        work: Callable[[float], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._monitor, self._meter = monitor, meter
        self._work, self._end = work, end
        self._stopped = False

    def step(self, timeout_s: float) -> bool:
        """As `Role.step`; what `work` raises comes out."""
        self._stopped = not self._monitor.goes_on(self._meter)
        if not self._stopped:
            self._work(timeout_s)
        return not self._stopped

    def close(self) -> None:
        """End the work, and say goodbye unless an error ended it: then it is known to have died."""
        self._end()
        if self._stopped:
            self._monitor.leave()

    @property
    def exit_status(self) -> int:
        """0 where the monitor said that the run is over, else the signal's."""
        return self._monitor.exit_status
