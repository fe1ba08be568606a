"""A watch over native code that cannot be interrupted: when it hangs, its process ends."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time

#: Exit status of a process that hung: the supervisor starts it again.
EXIT_HUNG = 75


class BodyTime:
    """How long a body has taken, without the time in which its whole process stood still.

    Args:
        look_every_s: how often somebody looks; of the time between two looks no more than twice
            that counts, the rest was a stopped process or a paused container.
    """

    def __init__(self, look_every_s: float) -> None:
        self._most_s = 2 * look_every_s
        self._since: float | None = None
        self._spent_s = self._looked_at = 0.0

    def look(self, since: float | None, now: float) -> float:
        """Seconds that the body which began at `since` has taken; 0 where there is none."""
        if since is None:
            self._since = None
            return 0.0
        before = self._looked_at if since == self._since else since
        spent_s = self._spent_s if since == self._since else 0.0
        self._since, self._looked_at = since, now
        self._spent_s = spent_s + min(now - before, self._most_s)
        return self._spent_s


class HangWatch:
    """A context whose body must not take longer than `timeout_s`; else the process ends.

    A thread looks at the time, so entering and leaving cost less than a microsecond. Code that
    hangs with the interpreter's lock held stops that thread too; then the monitor notices the
    role's silence, and the supervisor kills it.

    Args:
        timeout_s: longest duration of the body.
        what: it does, for the last words.
    """

    def __init__(self, timeout_s: float, what: str) -> None:
        if timeout_s <= 0:
            raise ValueError(f"timeout_s: expected seconds above 0, got {timeout_s}")
        self._timeout_s, self._what = timeout_s, what
        self._since: float | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hang-watch", daemon=True)
        self._thread.start()

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._since = None

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join(1.0)

    def _watch(self) -> None:
        look_every_s = min(1.0, self._timeout_s / 4)
        taken = BodyTime(look_every_s)
        while not self._closed.wait(look_every_s):
            if taken.look(self._since, time.monotonic()) > self._timeout_s:
                words = f"{self._what} has hung for {self._timeout_s:g} s; this process ends"
                print(words, file=sys.stderr, flush=True)
                faulthandler.dump_traceback()
                os._exit(EXIT_HUNG)
