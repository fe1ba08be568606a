"""How long clients of a server are to wait between two requests for what is newer."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

#: Most requests a second of all clients: a fifth of a core, or a little more.
MOST_REQUESTS_PER_S: Final = 2000.0
#: Seconds without a request after which a client does not count, beside the pause that it was told.
_GONE_AFTER_S: Final = 5.0


class AskingPace:
    """Counts the clients that ask, and paces them. Pure: time is an argument.

    A client asks again when it has had an answer, many times a second. Hundreds of them would take
    all the time of the thread that answers.
    """

    def __init__(self) -> None:
        self._asked_at: OrderedDict[bytes, float] = OrderedDict()  # the newest last

    def pause_s(self, client: bytes, now: float) -> float:
        """Count a client's request; seconds until its next one."""
        self._asked_at[client] = now
        self._asked_at.move_to_end(client)
        pause_s = len(self._asked_at) / MOST_REQUESTS_PER_S
        while now - next(iter(self._asked_at.values())) > _GONE_AFTER_S + pause_s:
            self._asked_at.popitem(last=False)
        return pause_s
