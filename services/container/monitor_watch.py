"""Ends a container whose monitor is away for good."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from aclearn.errors import AclearnError
from aclearn.launch import StopFlag
from aclearn.runs import RunFolder
from services.container.health import read_reports

#: Name of the monitor's service in the same docker-compose.yml.
MONITOR_HOST = "monitor"
#: Seconds that the monitor's container may be away before a role looks whether the run is over;
#: one that the monitor never answered ends then.
_AWAY_S = 15.0
#: The same before any role ends, with a checkpoint: nothing else would end a run whose monitor
#: Docker does not start again.
_AWAY_MOST_S = 600.0
_LOOK_EVERY_S = 1.0

NEVER_HEARD = "the monitor has ended before its first answer"
RUN_OVER = "the run is over, and the monitor has ended before this role"
AWAY = f"the monitor has been away for {_AWAY_MOST_S:g} seconds"
#: Reasons of `StopFlag`: Docker need not start the role again.
ENDED_BY_WATCH = frozenset({NEVER_HEARD, RUN_OVER, AWAY})


def watch_monitor(
    folder: Path, reports: Path, stop: StopFlag, at_bound: Callable[[], object], began: float
) -> None:
    """Start a thread that sets `stop` once the monitor is away and nothing is left to wait for.

    Args:
        folder: of the run.
        reports: of this container's health.
        at_bound: true if the run has reached a bound or its target; may raise `AclearnError`.
        began: time at which this process started, in seconds since 1970.
    """
    arguments = (reports, stop, lambda: is_over(folder, at_bound, began))
    threading.Thread(target=_watch, args=arguments, daemon=True).start()


def is_over(folder: Path, at_bound: Callable[[], object], began: float) -> bool:
    """Whether the run is over: at a bound or its target, or ended for a reason since `began`.

    A monitor that was only stopped gives a signal as its reason.
    """
    try:
        if at_bound():
            return True
        run = RunFolder.open(folder)
        summary = run.read_summary()
        if summary is None or run.summary_path.stat().st_mtime < began:
            return False
        return summary["reason"] not in signal.Signals.__members__
    except (AclearnError, OSError, KeyError):  # the monitor or trainer reports it
        return False


def _watch(reports: Path, stop: StopFlag, run_is_over: Callable[[], bool]) -> None:
    """A container that does not run has no address under its name."""
    away_since: float | None = None
    while not stop:
        time.sleep(_LOOK_EVERY_S)
        now = time.monotonic()
        try:
            socket.getaddrinfo(MONITOR_HOST, None)
            away_since = None
        except OSError:
            away_since = now if away_since is None else away_since
            if now - away_since <= _AWAY_S:
                continue
            if not any(report.heard_monitor for report in read_reports(reports)):
                stop.set(NEVER_HEARD)
            elif run_is_over():
                stop.set(RUN_OVER)
            elif now - away_since > _AWAY_MOST_S:
                stop.set(AWAY)
