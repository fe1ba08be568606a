"""A time limit on native code that cannot be interrupted: its process ends."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time

from aclearn.telemetry import ActiveClock

#: Exit status of a process that hung: the supervisor restarts it.
EXIT_HUNG = 75


class Watchdog:
    """A context whose body must not take longer than `timeout_s`; otherwise the process ends.

    A thread checks the time, so entering and leaving cost less than a microsecond. Time in which
    the whole process was suspended does not count. A hang with the interpreter's lock held stops
    that thread too; then the monitor reports the role as silent, and the supervisor kills it.

    Args:
        timeout_s: longest duration of the body; checked each second, or quarter of it.
    """

    def __init__(self, timeout_s: float, what: str) -> None:
        self._timeout_s, self._what = timeout_s, what
        self._look_every_s = min(1.0, timeout_s / 4)
        self._time = ActiveClock(2 * self._look_every_s)
        self._time.look(time.monotonic())
        self._since: float | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hang-watch", daemon=True)
        self._thread.start()

    def __enter__(self) -> None:
        self._since = self._time.at(time.monotonic())

    def __exit__(self, *_: object) -> None:
        self._since = None

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join(1.0)

    def _watch(self) -> None:
        while not self._closed.wait(self._look_every_s):
            since = self._since
            self._time.look(time.monotonic())
            if since is not None and self._time.seconds - since > self._timeout_s:
                words = f"{self._what} has hung for {self._timeout_s:g} s; this process ends"
                print(words, file=sys.stderr, flush=True)
                faulthandler.dump_traceback()
                os._exit(EXIT_HUNG)
