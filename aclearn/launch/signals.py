"""Stop signals: a flag that a loop reads, or an exception where there is no loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_FORCE_AT = 2
_DEFAULT_AT = 3
_SIGNAL_NAMES = frozenset(signal.Signals.__members__)


class Interrupted(BaseException):
    """Ctrl-C in a command that has no loop to read a StopFlag; see `raise_on_ctrl_c`.

    No KeyboardInterrupt, which an environment's code may raise itself: that is a fault of it.
    """


def raise_on_ctrl_c() -> None:
    """From now on Ctrl-C raises `Interrupted` in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a script's background
        signal.signal(signal.SIGINT, interrupt)


class StopFlag:
    """Says whether this process was asked to stop, and by what.

    The handlers only assign attributes: they raise nothing, take no lock and are safe at any point
    of the program. A loop that reads the flag between waits with deadlines stops in time.

    Attributes:
        reason: None until the first signal (or `set`), then its name, e.g. "SIGTERM".
        forced: True from the second Ctrl-C on: do not wait for an orderly end.
        last_acts: called by the third Ctrl-C before it ends the process, for what no `finally`
            can clean up any more. They must be short and raise nothing.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.forced = False
        self.last_acts: list[Callable[[], object]] = []
        self._interrupts = 0
        self._previous: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.reason is not None

    def __enter__(self) -> StopFlag:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()

    @property
    def exit_status(self) -> int:
        """128 + the number of the signal, the shell's custom; 1 where it was no signal."""
        return 128 + signal.Signals[self.reason] if self.reason in _SIGNAL_NAMES else 1

    def set(self, reason: str) -> None:
        """Ask for the stop from within the program; the first reason stays."""
        if self.reason is None:
            self.reason = reason

    def restore(self) -> None:
        """Put the handlers back that were there before; main thread only."""
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, handler)

    def _install(self, number: int) -> None:
        self._previous[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.set(signal.Signals(number).name)
        if number != signal.SIGINT:
            return  # a service manager may repeat SIGTERM without meaning more by it
        self._interrupts += 1
        self.forced = self._interrupts >= _FORCE_AT
        if self._interrupts >= _DEFAULT_AT:
            # Nobody reads the flag: the loop is stuck, and the person at the keyboard is right.
            for act in self.last_acts:
                act()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def install_stop_signals() -> StopFlag:
    """A flag that SIGTERM, SIGINT and a closed terminal (SIGHUP) set from now on.

    The second Ctrl-C sets `forced`; the third ends the process the hard way, for a loop that does
    not read its flag. SIGHUP stays ignored where it is (`nohup`).

    Raises:
        ValueError: called outside the main thread, where Python allows no handlers.
    """
    flag = StopFlag()
    flag._install(signal.SIGTERM)
    flag._install(signal.SIGINT)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        flag._install(signal.SIGHUP)
    return flag
