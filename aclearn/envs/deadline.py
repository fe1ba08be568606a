"""A time limit on foreign code, by SIGALRM."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any, ClassVar


class StepHungError(BaseException):
    """The guarded code exceeded its time limit.

    Not an `Exception`, so that an environment's own `except Exception` does not catch it.
    """


_MAIN_THREAD = threading.main_thread()
#: Pygame exits when its window closes.
_FAULTS = (Exception, StepHungError, SystemExit)


def environment_faults() -> tuple[type[BaseException], ...]:
    """Exceptions that are faults of an environment if its code raises them.

    A KeyboardInterrupt is one where it cannot be the user's Ctrl-C: outside the main thread, and in
    commands and roles, which handle SIGINT in their own way.
    """
    in_main_thread = threading.current_thread() is _MAIN_THREAD
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return _FAULTS
    return (*_FAULTS, KeyboardInterrupt)


class StepDeadline:
    """A context that raises StepHungError in its body once `timeout_s` seconds have passed.

    It interrupts Python code in the main thread, and Python's own waits (locks, sleep, sockets). It
    cannot interrupt native code, and has no effect in other threads; then the monitor misses the
    role's heartbeat and the supervisor kills the role.

    A body may make several calls, each with the whole limit: `next_call` is said between them.

    SIGALRM belongs to the process's deadlines from the first use of one to the close of the last,
    since changing the handler costs more than a step of a small environment. An earlier alarm (of a
    test runner) still reaches its own handler. Our alarm repeats at most once a second, for code
    that caught the first one, and for the cleaning up after it.
    """

    _users: ClassVar[set[StepDeadline]] = set()
    _armed: ClassVar[StepDeadline | None] = None
    _outer_handler: ClassVar[Any] = None

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._outer_timer = (0.0, 0.0)
        self._armed_at_s = self._call_began_s = 0.0

    def __enter__(self) -> None:
        self._armed_at_s = self._call_began_s = time.monotonic()
        if threading.current_thread() is not _MAIN_THREAD:
            return
        if self not in self._users:
            if signal.getsignal(signal.SIGALRM) != _on_alarm:
                StepDeadline._outer_handler = signal.signal(signal.SIGALRM, _on_alarm)
            self._users.add(self)
        StepDeadline._armed = self
        self._outer_timer = self._set_timer(self.timeout_s)

    def next_call(self) -> float:
        """Begin the limit of another call; returns the seconds since the body began."""
        # the alarm itself is set again when it comes too early: that costs once a limit, not a call
        self._call_began_s = now = time.monotonic()
        return now - self._armed_at_s

    def is_over(self) -> bool:
        """Whether the limit of the present call has passed; sets the alarm again if not."""
        left_s = self._call_began_s + self.timeout_s - time.monotonic()
        if left_s > 0.0:
            self._set_timer(left_s)
        return left_s <= 0.0

    def _set_timer(self, first_s: float) -> tuple[float, float]:
        return signal.setitimer(signal.ITIMER_REAL, first_s, max(self.timeout_s, 1.0))

    def __exit__(self, *_: object) -> None:
        self.disarm()

    def disarm(self) -> None:
        """Stop the alarm; no effect if it is stopped already.

        Call it first after catching StepHungError: an alarm at the moment of leaving the context
        can interrupt the context's own call.
        """
        if StepDeadline._armed is not self:
            return
        # In this order: an alarm just before is still ours and must not be passed on.
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        StepDeadline._armed = None
        remaining_s, interval_s = self._outer_timer
        if remaining_s > 0.0:
            remaining_s -= time.monotonic() - self._armed_at_s
            signal.setitimer(signal.ITIMER_REAL, max(remaining_s, 0.001), interval_s)

    def close(self) -> None:
        """Release SIGALRM if this is the last deadline; the deadline may be used again."""
        if threading.current_thread() is not _MAIN_THREAD or self not in self._users:
            return
        self.disarm()
        self._users.discard(self)
        if not self._users and signal.getsignal(signal.SIGALRM) == _on_alarm:
            signal.signal(signal.SIGALRM, StepDeadline._outer_handler or signal.SIG_DFL)


def _on_alarm(signum: int, frame: FrameType | None) -> None:
    armed, outer = StepDeadline._armed, StepDeadline._outer_handler
    if armed is not None and armed.is_over():
        raise StepHungError(f"no answer within {armed.timeout_s:g} s (actors.step_timeout_s)")
    if armed is None and callable(outer):
        outer(signum, frame)
