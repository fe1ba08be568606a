"""Typed ends of a connection: messages instead of frames, counted refusals instead of exceptions.

A channel belongs to the first thread that uses it; another thread's call is a bug and raises
`RuntimeError`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence

import zmq

from aclearn.errors import WireError
from aclearn.wire.arrays import Part
from aclearn.wire.codec import MAX_FRAMES, decode, encode
from aclearn.wire.keys import RefusedConnections
from aclearn.wire.messages import Envelope, ErrorReply, Message

_LOGGER = logging.getLogger(__name__)

#: Messages that one call of `Server.receive` takes from the socket, the refused ones included.
DEFAULT_RECEIVE_LIMIT = 32

# Plain numbers: to join two members of an enumeration takes a microsecond, for each frame.
_NO_WAIT, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)


class _Channel:
    """What both ends share: the socket, its owner, the counters.

    Attributes:
        socket: for pollers; receive and send through the channel only.
        refused: messages from peers that were refused, by reason (`REASONS`).
        unsent: messages of ours that could not be handed to ZeroMQ, by reason: "unreachable" (the
            peer is gone) or "full" (it has as many waiting as it may, or for a client: is not
            connected).
    """

    def __init__(self, socket: zmq.Socket[bytes], run: str, incarnation: str) -> None:
        self.socket = socket
        self.refused: Counter[str] = Counter()
        self.unsent: Counter[str] = Counter()
        self._run = run
        self._incarnation = incarnation
        self._sequence = 0
        self._owner: int | None = None

    def close(self, *, linger_s: float = 0.0) -> None:
        """Closes the socket; messages not yet sent get `linger_s` seconds to leave."""
        self.socket.close(linger=_milliseconds(linger_s))

    def _check_owner(self) -> None:
        thread = threading.get_ident()
        if self._owner is None:
            self._owner = thread
        elif self._owner != thread:
            raise RuntimeError("a channel was used by a second thread; one thread owns a socket")

    def _count(self, error: WireError) -> None:
        self.refused[error.reason] += 1
        if error.reason == "wrong_version" and self.refused[error.reason] == 1:
            # the peer cannot read an answer that says so
            _LOGGER.error("event=message_refused reason=%s detail=%r", error.reason, error.detail)

    def _encode(self, message: Message, sequence: int | None) -> list[Part]:
        number = self._sequence if sequence is None else sequence
        return encode(message, run=self._run, incarnation=self._incarnation, sequence=number)

    def _transmit(self, parts: Sequence[Part]) -> bool:
        """Hands a whole message to ZeroMQ without waiting.

        Parts under pyzmq's copy threshold (64 KiB) are copied, larger ones are sent out of their
        own memory.
        """
        last = len(parts) - 1
        try:
            for index, part in enumerate(parts):
                self.socket.send(part, _NO_WAIT if index == last else _MORE, copy=False)
        except zmq.Again:
            self.unsent["full"] += 1
            return False
        except zmq.ZMQError as exc:
            if exc.errno != zmq.EHOSTUNREACH:
                raise
            self.unsent["unreachable"] += 1
            return False
        self._sequence += 1
        return True

    def _take(self) -> list[zmq.Frame] | None:
        """The frames of one waiting message (cut when too many), or None."""
        try:
            frame = self.socket.recv(_NO_WAIT, copy=False)
        except zmq.Again:
            return None
        frames = [frame]
        while frame.more:
            frame = self.socket.recv(_NO_WAIT, copy=False)
            # Two more than allowed, for the routing id and for the decoder to see that there are
            # too many.
            if len(frames) < MAX_FRAMES + 2:
                frames.append(frame)
        return frames

    def _open(self, frames: Sequence[zmq.Frame]) -> Envelope:
        envelope = decode(frames)
        if envelope.run != self._run and not isinstance(envelope.message, ErrorReply):
            raise WireError(
                "wrong_run",
                f"the message belongs to run {envelope.run!r}, this is run {self._run!r}; all "
                "roles of a run need one run.name",
            )
        return envelope


class Server(_Channel):
    """The serving end: a ROUTER with any number of peers, each known by its routing id.

    Args:
        socket: from `bind_router`.
        run: messages of other runs are refused.
        incarnation: the incarnation that signs what is sent.
        accepts: the message types that this service answers; None for all.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        run: str,
        incarnation: str,
        *,
        accepts: Collection[type[Message]] | None = None,
    ) -> None:
        super().__init__(socket, run, incarnation)
        self._accepts = None if accepts is None else frozenset(accepts)
        self._pollers: dict[int | None, zmq.Poller] = {}
        has_keys = bool(socket.getsockopt(zmq.CURVE_SERVER))
        self._refused_connections = RefusedConnections(socket) if has_keys else None

    @property
    def refused_connections(self) -> int:
        """Connections without this cluster's keys, each try of a peer counted; 0 without keys."""
        return 0 if self._refused_connections is None else self._refused_connections.count

    def receive(
        self, timeout_s: float, *, limit: int = DEFAULT_RECEIVE_LIMIT, wake: int | None = None
    ) -> list[tuple[bytes, Envelope]]:
        """The waiting messages with their senders' routing ids, at most `limit`.

        Waits up to `timeout_s` seconds for the first. What is refused is counted in `refused`,
        answered with an `ErrorReply` and left out, so the list can be empty before the time is
        over. So it can when the file descriptor `wake` becomes readable, which is how other threads
        end the wait of the one that owns the socket.
        """
        self._check_owner()
        received: list[tuple[bytes, Envelope]] = []
        ready = self._poller(wake).poll(_milliseconds(timeout_s))
        if not any(source is self.socket for source, _ in ready):
            return received
        for _ in range(limit):
            frames = self._take()
            if frames is None:
                break
            routing_id = frames[0].bytes
            try:
                received.append((routing_id, self._open(frames[1:])))
            except WireError as exc:
                self.refuse(routing_id, exc)
        return received

    def refuse(self, routing_id: bytes, error: WireError) -> None:
        """Counts a refusal and answers it; also for checks that come after the decoder's."""
        self._count(error)
        self.send(routing_id, ErrorReply(error.reason, error.detail))

    def send(self, routing_id: bytes, message: Message, *, sequence: int | None = None) -> bool:
        """Whether the message was handed over; False (counted in `unsent`): peer gone or full.

        Arrays of the message must not change any more. Without `sequence` the channel numbers what
        it sends.

        Raises:
            ValueError: the receiver would refuse the message; as `encode`.
        """
        self._check_owner()
        return self._transmit([routing_id, *self._encode(message, sequence)])

    def _poller(self, wake: int | None) -> zmq.Poller:
        poller = self._pollers.get(wake)
        if poller is None:
            poller = self._pollers[wake] = zmq.Poller()
            poller.register(self.socket, zmq.POLLIN)
            if wake is not None:
                poller.register(wake, zmq.POLLIN)
        return poller

    def _open(self, frames: Sequence[zmq.Frame]) -> Envelope:
        envelope = super()._open(frames)
        if self._accepts is not None and type(envelope.message) not in self._accepts:
            raise WireError("unexpected_kind", "this service does not answer messages of this kind")
        return envelope


class Client(_Channel):
    """The asking end: a DEALER with one peer.

    Args:
        socket: from `connect_dealer`.
        run: messages of other runs are refused.
        incarnation: the incarnation that signs what is sent.
    """

    def __init__(self, socket: zmq.Socket[bytes], run: str, incarnation: str) -> None:
        super().__init__(socket, run, incarnation)
        # once: `Socket.poll` makes one for each call
        self._readable, self._writable = zmq.Poller(), zmq.Poller()
        self._readable.register(socket, zmq.POLLIN)
        self._writable.register(socket, zmq.POLLOUT)

    def receive(self, timeout_s: float) -> Envelope | None:
        """The next message, or None when `timeout_s` seconds pass without one.

        What is refused is counted in `refused` and not answered.
        """
        self._check_owner()
        deadline = time.monotonic() + timeout_s
        remaining_s = timeout_s
        while self._readable.poll(_milliseconds(max(0.0, remaining_s))):
            frames = self._take()
            if frames is not None:
                try:
                    return self._open(frames)
                except WireError as exc:
                    self._count(exc)
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                break
        return None

    def send(
        self, message: Message, *, sequence: int | None = None, timeout_s: float = 0.0
    ) -> bool:
        """Whether the message was handed over within `timeout_s`; False (and counted) when not.

        Arrays of the message must not change any more. Without `sequence` the channel numbers what
        it sends.

        Raises:
            ValueError: the receiver would refuse the message; as `encode`.
        """
        self._check_owner()
        parts = self._encode(message, sequence)
        if timeout_s > 0:
            self._writable.poll(_milliseconds(timeout_s))
        return self._transmit(parts)


def _milliseconds(seconds: float) -> int:
    if not 0 <= seconds < math.inf:
        raise ValueError(f"expected a finite time of at least 0 s, got {seconds}")
    return math.ceil(seconds * 1000)
