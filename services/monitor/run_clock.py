"""Moments that the processes of one machine can compare, independent of its wall clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

#: Environment variable with the moment of the command's start.
STARTED_AT_VARIABLE = "ACLEARN_STARTED_AT"
#: Longest valid span: a container may share the machine's boot but not its clock.
_LONGEST_S = 3600.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Moment(NamedTuple):
    """A value of the machine's monotonic clock, and the id of its boot."""

    boot: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.boot} {self.seconds!r}"

    def seconds_until(self, later: Moment) -> float | None:
        """From this moment to `later`; None if that is of another boot, earlier, or too late."""
        span_s = later.seconds - self.seconds
        return span_s if self.boot == later.boot and 0.0 <= span_s <= _LONGEST_S else None


def moment(seconds: float) -> Moment:
    """The moment of a value of the monotonic clock."""
    try:
        return Moment(_BOOT_ID.read_text(encoding="ascii").strip(), seconds)
    except OSError:  # no Linux
        return Moment("unknown", seconds)


def read_moment(text: object) -> Moment | None:
    """The moment in a text; None if it has none."""
    boot, _, seconds = str(text).partition(" ")
    try:
        return Moment(boot, float(seconds))
    except ValueError:
        return None


def started_seconds_ago(last_written: Moment | None, now: Moment) -> float:
    """Seconds before `now` at which the clock of this part of the run began.

    It began with the command, not the monitor; but a monitor that restarts within a run continues
    from its predecessor's last line. A pause between two parts or two boots does not count.
    """
    command = read_moment(os.environ.get(STARTED_AT_VARIABLE, ""))
    if command is None:
        return 0.0
    whole_s = command.seconds_until(now)
    since_s = None if last_written is None else last_written.seconds_until(now)
    # a command older than the longest valid span has none
    if since_s is not None and (whole_s is None or since_s < whole_s):
        return since_s
    return whole_s or 0.0
