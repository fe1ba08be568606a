"""Stop signals as a flag that a loop reads."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any

_FORCE_AT = 2
_DEFAULT_AT = 3


class StopFlag:
    """Says whether this process was asked to stop, and by what.

    The handlers only assign attributes: they raise nothing, take no lock and are safe at any point
    of the program. A loop that reads the flag between waits with deadlines stops in time.

    Attributes:
        reason: None until the first signal (or `set`), then its name, e.g. "SIGTERM".
        forced: True from the second Ctrl-C on: do not wait for an orderly end.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.forced = False
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
