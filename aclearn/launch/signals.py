"""Stop signals: a flag for loops, an exception for other code."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

_FORCE_AT = 2
_DEFAULT_AT = 3
_SIGNAL_NAMES = frozenset(signal.Signals.__members__)


class Interrupted(BaseException):
    """Ctrl-C, see `raise_on_ctrl_c`.

    Not a KeyboardInterrupt, which an environment raises only by a fault.
    """


def raise_on_ctrl_c() -> None:
    """Make Ctrl-C raise `Interrupted` in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a script's background
        signal.signal(signal.SIGINT, interrupt)


class StopFlag:
    """Whether this process was asked to stop, and by which signal.

    The handlers only assign attributes, so they are safe at any point of the program.

    Attributes:
        reason: name of the first signal, e.g. "SIGTERM", or the argument of `set`; None before.
        signal: name of the first signal, also of one after `set`; None without one.
        forced: True from the second Ctrl-C on: do not wait for an orderly end.
        last_acts: called by the third Ctrl-C first of all; must be short and must not raise.
        ends_process: whether the third Ctrl-C then ends the process without any `finally`; if
            False, it restores the earlier handlers and is theirs.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.signal: str | None = None
        self.forced = False
        self.last_acts: list[Callable[[], object]] = []
        self.ends_process = True
        self._interrupts = 0
        self._previous: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.reason is not None

    def __enter__(self) -> StopFlag:
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the earlier handlers; main thread only."""
        while self._previous:
            number = next(reversed(self._previous))
            signal.signal(number, self._previous[number])
            self._previous.pop(number, None)  # after it: a signal may come in between

    @property
    def exit_status(self) -> int:
        """128 + the number of the signal, as in shells; 1 without a signal."""
        return 128 + signal.Signals[self.reason] if self.reason in _SIGNAL_NAMES else 1

    def set(self, reason: str) -> None:
        """Request a stop from within the program; the first reason stays."""
        if self.reason is None:
            self.reason = reason

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number).name
        self.set(self.signal)
        if number != signal.SIGINT:
            return  # service managers may repeat SIGTERM
        self._interrupts += 1
        self.forced = self._interrupts >= _FORCE_AT
        if self._interrupts >= _DEFAULT_AT:
            # the loop does not read the flag
            for act in self.last_acts:
                act()
            if self.ends_process:
                signal.signal(number, signal.SIG_DFL)
            else:
                self.__exit__()
            os.kill(os.getpid(), number)


def install_stop_signals() -> StopFlag:
    """A flag set by SIGTERM, SIGINT and a closed terminal (SIGHUP) from now on.

    The second Ctrl-C sets `forced`; the third ends the process at once, see `ends_process`. An
    ignored SIGHUP stays ignored (`nohup`).

    Raises:
        ValueError: called outside the main thread, where Python allows no handlers.
    """
    flag = StopFlag()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            flag._previous[number] = signal.signal(number, flag._handle)
    return flag
