"""Typed ends of a connection: messages instead of frames, counted refusals instead of exceptions.

A channel belongs to the first thread that uses it; a call from another thread raises
`RuntimeError`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import zmq

from aclearn.errors import WireError
from aclearn.types import DEFAULT_POLICY, Unroll
from aclearn.wire.admission import Admission
from aclearn.wire.arrays import Part
from aclearn.wire.codec import buffer_of, decode, encode
from aclearn.wire.messages import Envelope, ErrorReply, Message
from aclearn.wire.monitor_messages import AllowedKey
from aclearn.wire.transport import Frames, Transport, milliseconds, poller_of

_LOGGER = logging.getLogger(__name__)

#: Reasons that this end's log names once.
_SAID_HERE = ("wrong_version", "not_allowed", "revoked_key")

#: Connections whose rights a server keeps; all are looked up again beyond.
_MOST_KNOWN = 1 << 15
#: Most messages of one call of `Server.receive`, including refused ones.
DEFAULT_RECEIVE_LIMIT = 32


class _Channel:
    """Common parts of both ends: transport, owner, counters.

    Attributes:
        refused: number of refused messages from peers, by reason (`REASONS`).
    """

    #: Names of the policies that this end knows.
    policies: Collection[str] = (DEFAULT_POLICY,)

    def __init__(
        self, transport: Transport, run: str, incarnation: str, array_bytes: int | None = None
    ) -> None:
        self.transport = transport
        self._array_bytes = array_bytes
        self.refused: Counter[str] = Counter()
        self.unsent: Counter[str] = Counter()
        self._run = run
        self._incarnation = incarnation
        self._sequence = 0
        self._owner: int | None = None

    def close(self, *, linger_s: float = 0.0) -> None:
        """Closes this end; unsent messages have `linger_s` seconds to leave."""
        self.transport.close(linger_s)

    def _check_owner(self) -> None:
        thread = threading.get_ident()
        if self._owner is None:
            self._owner = thread
        elif self._owner != thread:
            raise RuntimeError("a channel was used by a second thread; one thread owns a socket")

    def _count(self, error: WireError) -> None:
        self.refused[error.reason] += 1
        if error.reason in _SAID_HERE and self.refused[error.reason] == 1:
            # the peer may not be able to read an error reply, or not want to
            _LOGGER.error("event=message_refused reason=%s detail=%r", error.reason, error.detail)

    def _encode(self, message: Message, sequence: int | None) -> list[Part]:
        number = self._sequence if sequence is None else sequence
        return encode(message, run=self._run, incarnation=self._incarnation, sequence=number)

    def _transmit(self, parts: Sequence[Part]) -> bool:
        unsent = self.transport.send(parts)
        if unsent is None:
            self._sequence += 1
            return True
        self.unsent[unsent] += 1
        return False

    def _open(self, frames: Frames, key: AllowedKey | None = None) -> Envelope:
        envelope = decode(frames, array_bytes=self._array_bytes, key=key)
        if envelope.run != self._run and not isinstance(envelope.message, ErrorReply):
            raise WireError(
                "wrong_run",
                f"the message belongs to run {envelope.run!r}, this is run {self._run!r}; all "
                "roles of a run need one run.name",
            )
        message = envelope.message
        # that of an unroll is checked by its receiver, which accounts for the steps too
        if not isinstance(message, Unroll) and (
            (policy := getattr(message, "policy", None)) is not None and policy not in self.policies
        ):
            raise WireError(
                "unknown_policy",
                f"policy: expected {' or '.join(self.policies)}, got {policy}",
            )
        return envelope


class Server(_Channel):
    """The serving end: a ROUTER with any number of peers, each known by its routing id.

    Args:
        accepts: the message types that this service handles, each with the roles that may send it;
            None for all, of all.
        array_bytes: most bytes of a message's arrays; longer ones are refused before they are
            decoded. None for no bound.
    """

    def __init__(
        self,
        transport: Transport,
        run: str,
        incarnation: str,
        *,
        accepts: Mapping[type[Message], Collection[str]] | None = None,
        array_bytes: int | None = None,
    ) -> None:
        super().__init__(transport, run, incarnation, array_bytes)
        self._accepts = accepts
        self._everything = None if accepts is None else frozenset(accepts)
        #: Mark of a connection → the key that it has proved, and what this may send.
        self._known: dict[str, tuple[AllowedKey, frozenset[type[Message]] | None]] = {}
        self._revision = -1

    def receive(
        self, timeout_s: float, *, limit: int = DEFAULT_RECEIVE_LIMIT, wake: int | None = None
    ) -> list[tuple[bytes, Envelope]]:
        """The waiting messages with their senders' routing ids, at most `limit`.

        Waits up to `timeout_s` seconds for the first. Refused messages are counted in `refused`,
        answered with an `ErrorReply` and left out, so the list may be empty early. It also returns
        when the file descriptor `wake` becomes readable, so that other threads can end the wait.
        """
        self._check_owner()
        received: list[tuple[bytes, Envelope]] = []
        if not self.transport.wait(timeout_s, wake):
            return received
        admission = self.transport.admission
        if admission is not None and admission.revision != self._revision:
            self._revision = admission.revision
            self._known.clear()
        for _ in range(limit):
            frames = self.transport.take()
            if frames is None:
                break
            routing_id = bytes(buffer_of(frames[0]))
            try:
                received.append((routing_id, self._open_for(frames, admission)))
            except WireError as exc:
                self.refuse(routing_id, exc)
        return received

    @property
    def refused_keys(self) -> int:
        """Number of connections and messages that were refused by their key."""
        return self.transport.refused_keys.total() + self.refused["revoked_key"]

    def refuse(self, routing_id: bytes, error: WireError) -> None:
        """Counts a refusal and answers it; also for checks after decoding."""
        self._count(error)
        self.send(routing_id, ErrorReply(error.reason, error.detail))

    def send(self, routing_id: bytes, message: Message, *, sequence: int | None = None) -> bool:
        """Send a message; False if the peer is gone or full (counted in `unsent`).

        The message's arrays must not change afterwards. Without `sequence` the channel numbers it.

        Raises:
            ValueError: the receiver would refuse the message; as `encode`.
        """
        self._check_owner()
        return self._transmit([routing_id, *self._encode(message, sequence)])

    def _open_for(self, frames: Frames, admission: Admission | None) -> Envelope:
        """The message, checked against what its sender's key is for."""
        key, allowed = None, self._everything
        if admission is not None:
            mark = frames[0].get(b"User-Id")  # type: ignore[union-attr]  # of a socket
            key, allowed = self._known.get(mark) or self._look_up(frames[0], admission)
        envelope = self._open(frames[1:], key)
        kind = type(envelope.message)
        if allowed is not None and kind not in allowed:
            if self._accepts is None or kind not in self._accepts:
                raise WireError(
                    "unexpected_kind", "this service does not accept messages of this kind"
                )
            raise WireError("not_allowed", _not_for(key, f"send {kind.__name__}"))
        return envelope

    def _look_up(
        self, frame: Part | zmq.Frame, admission: Admission
    ) -> tuple[AllowedKey, frozenset[type[Message]] | None]:
        """The key of a connection, and what it may send."""
        mark, key = admission.sender(frame)
        if key is None:
            self.transport.end(frame)
            raise WireError("revoked_key", "the key of this connection is not allowed any more")
        allowed = None
        if self._accepts is not None:
            roles = set(key.roles)
            allowed = frozenset(kind for kind, may in self._accepts.items() if roles & set(may))
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        known = self._known[mark] = key, allowed
        return known


def _not_for(key: AllowedKey | None, act: str) -> str:
    """Why a key does not allow an act."""
    assert key is not None
    return f"the key {key.name} is for {' and '.join(key.roles)}, which may not {act}"


class Client(_Channel):
    """The requesting end: a DEALER with one peer."""

    def receive(self, timeout_s: float) -> Envelope | None:
        """The next message; None if there is none within `timeout_s` seconds.

        Refused messages are counted in `refused` and not answered.
        """
        self._check_owner()
        deadline = time.monotonic() + timeout_s
        remaining_s = timeout_s
        while self.transport.wait(max(0.0, remaining_s)):
            frames = self.transport.take()
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
        """Send a message within `timeout_s`; False if that fails (counted in `unsent`).

        The message's arrays must not change afterwards. Without `sequence` the channel numbers it.

        Raises:
            ValueError: the receiver would refuse the message; as `encode`.
        """
        self._check_owner()
        parts = self._encode(message, sequence)
        if timeout_s > 0:
            self.transport.wait_for_room(timeout_s)
        return self._transmit(parts)


class ChannelPoller:
    """Waits for a message on any of several channels of one thread."""

    def __init__(self, *channels: Server | Client) -> None:
        sockets = [channel.transport.pollable for channel in channels]
        self._poller = poller_of(*(s for s in sockets if s is not None))
        self._waits = None not in sockets

    def wait(self, timeout_s: float) -> None:
        """Return when there is a message, or after `timeout_s`."""
        if self._waits:
            self._poller.poll(milliseconds(timeout_s))
