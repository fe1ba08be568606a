"""A deadline on code that is not ours, kept by SIGALRM."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any


class StepHungError(BaseException):
    """The guarded code did not come back in time.

    No `Exception`, so that an environment's own `except Exception` does not swallow it.
    """


#: Each of these, raised by an environment's code, is a fault of that environment. SystemExit and
#: KeyboardInterrupt too: pygame environments exit when their window closes, and a Ctrl-C of the
#: user's is none of these, since every command of ours takes SIGINT itself.
ENVIRONMENT_FAULTS = (Exception, StepHungError, SystemExit, KeyboardInterrupt)


class StepDeadline:
    """A context that raises StepHungError in its body once `timeout_s` seconds have passed.

    What it can interrupt: Python code in the main thread, and waits that Python itself makes
    (locks, sleep, sockets). What it cannot: a call stuck inside native code, and any thread but
    the main one, where it does nothing at all. There the silence is what tells: the monitor misses
    the role's heartbeat, and the supervisor kills the actor.

    SIGALRM belongs to the deadlines of the process from the first use of one to the close of the
    last, since changing the handler costs more than a step of a small environment. An alarm that
    somebody else had set before (a test runner's) still goes off, at their handler. Our alarm
    repeats, so that code that swallowed the first one gets another; never faster than each
    second, so that it does not run into the cleaning up after the first.
    """

    def __init__(self, timeout_s: float) -> None:
        if timeout_s <= 0:
            raise ValueError(f"timeout_s: expected seconds above 0, got {timeout_s}")
        self.timeout_s = timeout_s
        self._outer_timer = (0.0, 0.0)
        self._armed_at_s = 0.0

    def __enter__(self) -> None:
        if threading.current_thread() is not _MAIN_THREAD:
            return
        if self not in _alarm.users:
            _alarm.acquire(self)
        self._armed_at_s = time.monotonic()
        _alarm.armed = self
        self._outer_timer = signal.setitimer(
            signal.ITIMER_REAL, self.timeout_s, max(self.timeout_s, 1.0)
        )

    def __exit__(self, *_: object) -> None:
        self.disarm()

    def disarm(self) -> None:
        """Stop the alarm; does nothing when it is stopped already.

        Whoever catches StepHungError calls this first: an alarm that comes in the very moment in
        which the context is left can cut short the context's own call.
        """
        if _alarm.armed is not self:
            return
        # In this order: an alarm that comes just before is still ours and must not be passed on.
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        _alarm.armed = None
        remaining_s, interval_s = self._outer_timer
        if remaining_s > 0.0:
            remaining_s -= time.monotonic() - self._armed_at_s
            signal.setitimer(signal.ITIMER_REAL, max(remaining_s, 0.001), interval_s)

    def close(self) -> None:
        """Give SIGALRM back, if this is the last deadline; the deadline may be used again."""
        if threading.current_thread() is _MAIN_THREAD and self in _alarm.users:
            self.disarm()
            _alarm.release(self)


class _Alarm:
    """Who owns SIGALRM in this process: one handler for all deadlines, one of them armed."""

    def __init__(self) -> None:
        self.users: set[StepDeadline] = set()
        self.armed: StepDeadline | None = None
        self._outer_handler: Any = None

    def acquire(self, user: StepDeadline) -> None:
        if signal.getsignal(signal.SIGALRM) != self._on_alarm:
            self._outer_handler = signal.signal(signal.SIGALRM, self._on_alarm)
        self.users.add(user)

    def release(self, user: StepDeadline) -> None:
        self.users.discard(user)
        if not self.users and signal.getsignal(signal.SIGALRM) == self._on_alarm:
            signal.signal(signal.SIGALRM, self._outer_handler or signal.SIG_DFL)

    def _on_alarm(self, signum: int, frame: FrameType | None) -> None:
        if self.armed is not None:
            raise StepHungError(
                f"no answer within {self.armed.timeout_s:g} s (actors.step_timeout_s)"
            )
        if callable(self._outer_handler):
            self._outer_handler(signum, frame)


_MAIN_THREAD = threading.main_thread()
_alarm = _Alarm()
