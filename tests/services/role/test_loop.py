"""A role from its first step to its end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aclearn.telemetry import WaitMeter
from services.role.loop import STEP_WITHIN_S, MonitoredRole, run_to_end


class Monitored:
    """A role that the monitor stops after this many rounds, and a record of its calls."""

    def __init__(self, rounds: int, *, fails_in: int = 0) -> None:
        self.log: list[object] = []
        self._left, self._fails_in = rounds, fails_in
        monitor = SimpleNamespace(
            goes_on=self._goes_on, leave=lambda: self.log.append("goodbye"), exit_status=3
        )
        self.role = MonitoredRole(
            monitor, WaitMeter(), self._work, lambda: self.log.append("work ends")
        )

    def _goes_on(self, meter) -> bool:
        self._left -= 1
        return self._left >= 0

    def _work(self, timeout_s: float) -> None:
        self.log.append(timeout_s)
        if len(self.log) == self._fails_in:
            raise ValueError("broken on purpose")


def test_a_role_works_until_the_monitor_stops_it_and_says_goodbye_last() -> None:
    monitored = Monitored(rounds=3)
    assert run_to_end(monitored.role) == 3
    assert monitored.log == [STEP_WITHIN_S] * 3 + ["work ends", "goodbye"]


def test_a_role_that_fails_ends_its_work_without_a_goodbye() -> None:
    monitored = Monitored(rounds=3, fails_in=2)
    with pytest.raises(ValueError, match="broken on purpose"):
        run_to_end(monitored.role)
    assert monitored.log == [STEP_WITHIN_S] * 2 + ["work ends"]


def test_a_role_that_somebody_else_steps_waits_as_long_as_it_is_told() -> None:
    monitored = Monitored(rounds=2)
    assert [monitored.role.step(timeout_s) for timeout_s in (0.0, 0.5, 0.0)] == [True, True, False]
    assert monitored.log == [0.0, 0.5]
