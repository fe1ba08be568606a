"""The end of a long batch before its time, because the run ends."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident


class BatchStopped(Exception):
    """The run ends before the batch."""


class StopCheck:
    """Call it between pieces of a batch's work, in any thread.

    Only the thread that made it asks; the others take its last answer.

    Raises:
        BatchStopped: in every call after the first answer of False, in every thread.
    """

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self._goes_on, self._asks = goes_on, get_ident()
        self._stopped = False

    def __call__(self) -> None:
        """Return if the batch goes on."""
        if not self._stopped and get_ident() == self._asks:
            self._stopped = not self._goes_on()
        if self._stopped:
            raise BatchStopped
