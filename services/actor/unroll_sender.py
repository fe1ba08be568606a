"""Ships unrolls to the trainer, at most a few unacknowledged at a time: the back-pressure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from aclearn.telemetry import WaitMeter
from aclearn.types import Unroll
from aclearn.wire import ErrorReply, UnrollReply
from services.runtime.monitor_client import MonitorClient
from services.runtime.peer_link import PeerLink
from services.runtime.refusal_log import say_refusal

_LOOK_EVERY_S = 0.02
#: A trainer that is busy or stopped may take long; a minute of silence is a lost answer.
_ANSWER_WITHIN_S = 60.0


class UnrollSender:
    """Sends each unroll once and never again; the trainer acknowledges what it admitted.

    A trainer whose queue is full does not acknowledge, so the actor waits. What a dead trainer
    leaves unacknowledged is lost; its successor counts it as a gap.

    An answer that does not come within `_ANSWER_WITHIN_S` although the trainer lives is given up:
    the unroll is learned or lost, the trainer knows which, and the actor goes on.

    Args:
        link: to the trainer.
        membership: tells of the trainer's restarts.
        most_unacknowledged: unrolls on the way before it waits.
        meter: counts the wait for room.
        clock: monotonic seconds.

    Attributes:
        refused: reason → unrolls that the trainer refused.
        unanswered: unrolls whose answer was given up.
    """

    def __init__(
        self,
        link: PeerLink,
        membership: MonitorClient,
        *,
        most_unacknowledged: int,
        meter: WaitMeter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._membership = link, membership
        self._meter = WaitMeter() if meter is None else meter
        self._most, self._clock = most_unacknowledged, clock
        self._unacknowledged: dict[int, float] = {}
        self.refused: Counter[str] = Counter()
        self.unanswered = 0
        self._refusals: set[str] = set()

    @property
    def unacknowledged(self) -> int:
        """Unrolls sent whose fate is not known yet."""
        return len(self._unacknowledged)

    def gauges(self) -> dict[str, float]:
        """What is on the way, and what has gone wrong since the start."""
        return {
            "unacknowledged_unrolls": float(self.unacknowledged),
            "refused_unrolls": float(sum(self.refused.values())),
            "unanswered_unrolls": float(self.unanswered),
        }

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take the acknowledgements that are there, waiting up to `timeout_s` for the first."""
        if self._link.follow(self._membership):
            self._unacknowledged.clear()
        client = self._link.client
        if client is None:
            return
        while (envelope := client.receive(timeout_s)) is not None:
            timeout_s = 0.0
            reply = envelope.message
            if isinstance(reply, UnrollReply):
                self._unacknowledged.pop(reply.unroll, None)
                if not reply.accepted:
                    self.refused[reply.reason] += 1
            elif isinstance(reply, ErrorReply):
                say_refusal(self._refusals, "trainer", reply)
        given_up = self._clock() - _ANSWER_WITHIN_S
        for sequence in [s for s, sent in self._unacknowledged.items() if sent < given_up]:
            del self._unacknowledged[sequence]
            self.unanswered += 1

    def has_room(self) -> bool:
        """Whether an unroll may be sent now."""
        return self._link.client is not None and len(self._unacknowledged) < self._most

    def send(self, sequence: int, unroll: Unroll, proceed: Callable[[], bool]) -> bool:
        """Send as soon as there is room; False when `proceed` said to stop before that."""
        self.poll()
        while not self._try_to_send(sequence, unroll):
            if not proceed():
                return False
            with self._meter.waiting("training queue"):
                if self._link.client is not None and not self.has_room():
                    self.poll(_LOOK_EVERY_S)  # an acknowledgement makes room
                else:
                    time.sleep(_LOOK_EVERY_S)  # no trainer: there is nothing to wait on
                    self.poll()
        return True

    def _try_to_send(self, sequence: int, unroll: Unroll) -> bool:
        client = self._link.client
        if client is None or not self.has_room():
            return False
        if not client.send(unroll, sequence=sequence):
            return False
        self._unacknowledged[sequence] = self._clock()
        return True
