"""Sends unrolls to the trainer with few in flight: the back-pressure."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence

from aclearn.telemetry import WaitMeter
from aclearn.types import Unroll
from aclearn.wire import Message, UnrollReply
from services.role.monitor_client import MonitorClient
from services.role.request_client import PeerLink, RequestClient
from services.role.requests import RetryPolicy

#: A trainer with a full queue answers late: it has read nothing. So the time without an answer
#: doubles.
_RETRY = RetryPolicy(
    answer_within_s=math.inf,
    in_order=True,
    silent_after_s=3.0,
    reached_within_s=3.0,
    retry_first_s=0.1,
    retry_most_s=1.0,
)


class UnrollSender:
    """Sends unrolls until the trainer has answered; it acknowledges those that it admits.

    A trainer with a full queue does not answer, so the actor waits. Unrolls may also be lost, or
    their answers: those without one are sent again, over a new connection, after 3 s, 6 s, 12 s and
    so on. The trainer refuses the second copy of an unroll, its successor another generation's.

    Args:
        max_in_flight: unacknowledged unrolls before it waits.

    Attributes:
        refused: reason → number of unrolls that the trainer refused.
    """

    def __init__(
        self,
        link: PeerLink,
        monitor: MonitorClient,
        *,
        max_in_flight: int,
        meter: WaitMeter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = RequestClient[int](link, _RETRY, self._take, clock)
        self._monitor, self._most = monitor, max_in_flight
        self._meter = WaitMeter() if meter is None else meter
        self.refused: Counter[str] = Counter()
        self._last = True  # until the trainer says that the bound is far

    @property
    def in_flight(self) -> int:
        """Number of unacknowledged unrolls."""
        return len(self._client.requests)

    @property
    def waits(self) -> bool:
        """Whether steps may be beyond the run's bound until the trainer has answered."""
        return self._last and self.in_flight > 0

    def gauges(self) -> dict[str, float]:
        """Unrolls in flight, and errors since the start."""
        return {
            "in_flight_unrolls": float(self.in_flight),
            "refused_unrolls": float(sum(self.refused.values())),
            "repeated_unrolls": float(self._client.requests.repeated),
        }

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take received acknowledgements, waiting up to `timeout_s` for the first."""
        self._client.poll(self._monitor, timeout_s)

    def _take(self, reply: Message) -> int | None:
        if not isinstance(reply, UnrollReply):
            return None
        self._last = reply.last
        if not reply.accepted and reply.unroll in self._client.requests:  # no second answer
            self.refused[reply.reason] += 1
        return reply.unroll

    def has_room(self) -> bool:
        """Whether an unroll may be sent now."""
        return self._client.link.client is not None and self.in_flight < self._most

    def send(self, sequence: int, unrolls: Sequence[Unroll], timeout_s: float) -> bool:
        """Send the unrolls of one number if there is room within `timeout_s`; whether they went.

        Those of several policies have one answer.
        """
        self.poll()
        if self._try_to_send(sequence, unrolls):
            return True
        with self._meter.waiting("training queue"):
            if self._client.link.client is not None and not self.has_room():
                self.poll(timeout_s)  # may free room
            else:
                time.sleep(timeout_s)  # no trainer: no socket to wait on
                self.poll()
        return self._try_to_send(sequence, unrolls)

    def _try_to_send(self, sequence: int, unrolls: Sequence[Unroll]) -> bool:
        if not self.has_room():
            return False
        self._client.ask(sequence, *unrolls, sequence=sequence)
        return True
