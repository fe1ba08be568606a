"""A role as an object with steps: for its process's loop, or in turns with other roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from typing_extensions import override

from aclearn.telemetry import WaitMeter
from services.role.monitor_client import MonitorClient

#: Longest wait of a step, in seconds.
STEP_WITHIN_S = 0.02


class Role(Protocol):
    """One role of a run. One thread steps it and closes it."""

    def step(self, timeout_s: float) -> bool:
        """One round of the role's loop; waits up to `timeout_s` for work.

        Returns:
            False when the role has ended in order.
        """

    def close(self) -> None:
        """Release all resources, after a last heartbeat if the role ended in order."""

    @property
    def exit_status(self) -> int:
        """The status of its process after an end in order."""


def run_to_end(role: Role) -> int:
    """Step a role until its end; returns its exit status."""
    try:
        while role.step(STEP_WITHIN_S):
            pass
    finally:
        role.close()
    return role.exit_status


class MonitoredRole(Role):
    """A role that works until the monitor or a signal stops it.

    Args:
        work: one round of the work; waits up to the given seconds.
        end: ends the work in any case; called before the last heartbeat.
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

    @override
    def step(self, timeout_s: float) -> bool:
        self._stopped = not self._monitor.goes_on(self._meter)
        if not self._stopped:
            self._work(timeout_s)
        return not self._stopped

    def close(self) -> None:
        """End the work and send the last heartbeat; not after an error, which counts as a death."""
        self._end()
        if self._stopped:
            self._monitor.leave()

    @property
    def exit_status(self) -> int:
        """0 if the monitor ended the run, else the signal's."""
        return self._monitor.exit_status
