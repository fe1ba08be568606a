"""Actions asked of a predictor."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from aclearn.telemetry import WaitMeter
from aclearn.types import ActionBatch, PolicyVersion, State
from aclearn.types.env_spec import Observations
from aclearn.wire import REPLY_WITHIN_S, ActCancel, ActReply, ActRequest, ErrorReply
from services.runtime.peer_link import PeerLink
from services.runtime.refusal_log import say_refusal

#: A predictor of which nothing was heard for so long is passed over. Twice the time after which it
#: is asked again: one that is only slow keeps the request's place then, the next has the end of its
#: queue.
_SILENT_AFTER_S = 2 * REPLY_WITHIN_S

#: A request that found the prediction queue full is asked again after so long.
_NO_ROOM_PAUSE_S = 0.5

#: Seconds that cancellations may take to leave the socket.
_LAST_WORDS_WITHIN_S = 0.5

#: Longest wait between two looks at everything else.
_LOOK_EVERY_S = 0.02


@dataclass
class _Request:
    """A request without a reply.

    Attributes:
        since: from when on the predictor that is asked now could have been heard.
        sent: whether it has left for that predictor.
        again_at: when to send it (again).
    """

    message: ActRequest
    since: float
    sent: bool = False
    again_at: float = -math.inf


class PredictorClient:
    """GA3C: a predictor answers. One that is late is asked again, one that is silent passed over.

    Replies are matched by request number, so what comes too late is ignored.

    Args:
        link: to the predictor.
        follow: lets the link look at the peers; True when the predictor is another one now.
        meter: counts the wait for replies, and what messages take.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: PeerLink,
        follow: Callable[[], bool],
        meter: WaitMeter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._follow, self._clock = link, follow, clock
        self._meter = meter
        self._number = 0
        self._requests: dict[int, _Request] = {}
        self._replies: dict[int, ActionBatch] = {}
        self._refusals: set[str] = set()
        self._heard_at = -math.inf
        self.predictions = 0
        self.asked_again = 0

    def poll(self) -> None:
        """Send what could not be sent, ask again what is late, take the replies that are there."""
        with self._meter.part("wire"):
            self._poll()

    def _poll(self) -> None:
        self._receive(0.0)  # first: what came while the environments stepped was no silence
        now = self._clock()
        oldest = min((request.since for request in self._requests.values()), default=now)
        if now - max(oldest, self._heard_at) > _SILENT_AFTER_S:
            self._link.pass_over()
        if self._follow():
            for request in self._requests.values():
                request.since, request.sent, request.again_at = now, False, -math.inf
        for request in self._requests.values():
            if now > request.again_at:
                self._send(request)

    def request(self, group: int, observations: Observations, state: State) -> None:
        """Send the observations and the state; they must not change until the reply."""
        self._number += 1
        self._replies.pop(group, None)
        if group in self._requests:
            self._cancel(self._requests[group])
        asked = ActRequest(self._number, dict(observations), REPLY_WITHIN_S, state)
        self._requests[group] = _Request(asked, self._clock())
        with self._meter.part("wire"):
            self._send(self._requests[group])

    def collect(self, group: int, proceed: Callable[[], bool]) -> ActionBatch | None:
        """Wait for the reply to the group's request."""
        while group not in self._replies:
            if not proceed():
                return None
            self.poll()
            if group not in self._replies:
                with self._meter.waiting("actions"):
                    self._receive(_LOOK_EVERY_S)
        return self._replies.pop(group)

    def gauges(self) -> dict[str, float]:
        """Nothing: the predictor speaks for itself."""
        return {}

    def close(self) -> None:
        """Take back what is not answered yet, so that nobody computes it."""
        for request in self._requests.values():
            self._cancel(request)
        self._requests.clear()
        if self._link.client is not None:
            self._link.client.close(linger_s=_LAST_WORDS_WITHIN_S)

    def _cancel(self, request: _Request) -> None:
        if self._link.client is not None and request.sent:
            # should it not leave: what is not cancelled is answered, and the answer ignored
            self._link.client.send(ActCancel(request.message.request))

    def _send(self, request: _Request) -> None:
        client = self._link.client
        if client is not None and client.send(request.message):
            self.asked_again += request.sent
            request.sent, request.again_at = True, self._clock() + REPLY_WITHIN_S

    def _receive(self, timeout_s: float) -> None:
        client = self._link.client
        if client is None:
            if timeout_s:
                time.sleep(timeout_s)
            return
        while (envelope := client.receive(timeout_s)) is not None:
            timeout_s = 0.0
            self._heard_at = self._clock()
            reply = envelope.message
            if isinstance(reply, ErrorReply):
                self._take_refusal(reply)
            if not isinstance(reply, ActReply):
                continue
            for group, request in self._requests.items():
                asked = request.message
                if reply.request == asked.request and len(reply.actions) == asked.size:
                    at = PolicyVersion(reply.generation, reply.version)
                    self._replies[group] = ActionBatch(
                        reply.actions,
                        reply.log_prob,
                        at,
                        reply.chain,
                        state=asked.state,
                        next_state=reply.next_state,
                    )
                    self.predictions += len(reply.actions)
                    del self._requests[group]
                    break

    def _take_refusal(self, refusal: ErrorReply) -> None:
        """A full queue has room in a moment; any other request is asked again when it is late."""
        if refusal.reason == "queue_full":
            self._ask_soon()
        else:
            # what is bad stays bad: somebody must hear why this actor gets no further
            say_refusal(self._refusals, "predictor", refusal)

    def _ask_soon(self) -> None:
        """Some request had no room: whichever it was, one that has keeps its place."""
        soon = self._clock() + _NO_ROOM_PAUSE_S
        for request in self._requests.values():
            request.again_at = min(request.again_at, soon)
