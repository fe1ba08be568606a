"""One end of a connection for whole messages, and its implementation over ZeroMQ."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Protocol

import zmq

from aclearn.errors import EndpointError
from aclearn.wire.admission import Admission, ClientKeys, ServerKeys
from aclearn.wire.arrays import Part
from aclearn.wire.codec import MAX_FRAMES
from aclearn.wire.connections import ConnectionGuard, end_connection

#: The frames of a received message.
Frames = Sequence[Part | zmq.Frame]
#: Why a message could not be sent: the peer is gone; or its queue is full, or a client is not
#: connected.
Unsent = Literal["unreachable", "full"]

# Plain numbers: combining two members of an enumeration takes a microsecond for each frame.
_NO_WAIT, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
#: Seconds until the address of a socket that has just stopped listening is free.
_REBIND_WITHIN_S, _REBIND_EVERY_S = 3.0, 0.005


class Transport(Protocol):
    """One end of a connection. Only the two waits block.

    At a server's end the first part of every message is the routing id of the client.
    """

    @property
    def pollable(self) -> zmq.Socket[bytes] | None:
        """The socket for a poller; None where messages arrive only between this thread's waits."""

    @property
    def admission(self) -> Admission | None:
        """Who may connect to this server; None without keys."""

    @property
    def refused_connections(self) -> int:
        """Number of refused connection attempts: by their keys, or beyond the bound."""

    @property
    def refused_keys(self) -> Counter[str]:
        """Of these, those by their keys, by reason."""

    def end(self, frame: Part | zmq.Frame) -> None:
        """End the connection that a message's first frame came from."""

    def rebind(self, keys: ServerKeys) -> None:
        """Listen at the same address with another pair; all connections end, and come back.

        Raises:
            EndpointError: another process has taken the address.
        """

    def reconnect(self, address: str, keys: ClientKeys) -> None:
        """Connect to the server again with these keys; messages on their way may be lost."""

    def renew(self) -> None:
        """Connect to the server again, where nothing can be sent.

        A message that is sent now over a connection which lives would be lost.
        """

    def send(self, parts: Sequence[Part]) -> Unsent | None:
        """Send a whole message without waiting; returns None, or why it could not be sent."""

    def take(self) -> Frames | None:
        """The frames of one waiting message (cut if too many), or None."""

    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        """Whether a message arrives within `timeout_s`; the file descriptor `wake` ends the wait.

        Raises:
            ValueError: `timeout_s` is negative or not finite.
        """

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether a message can be sent within `timeout_s`; clients only."""

    def close(self, linger_s: float) -> None:
        """Close this end; unsent messages have `linger_s` seconds to leave."""


class ZmqTransport:
    """A ROUTER or DEALER, from `bind_router` or `connect_dealer`.

    Args:
        keys: of a server, as for `bind_router`.
    """

    def __init__(self, socket: zmq.Socket[bytes], keys: ServerKeys | None = None) -> None:
        self.socket = socket
        self._domain: bytes = socket.getsockopt(zmq.ZAP_DOMAIN)  # type: ignore[assignment]
        # without a domain it is no tcp socket
        self._admission = keys.admission if keys is not None and self._domain else None
        # kept, since `Socket.poll` makes a poller for each call
        self._readable: dict[int | None, zmq.Poller] = {}
        self._writable: zmq.Poller | None = None
        self._guard = ConnectionGuard(socket) if socket.type == zmq.ROUTER else None
        if self._admission is not None and self._guard is not None:
            self._guard.closed = partial(self._admission.closed, self._domain)
            self._admission.serve(self._domain, self._guard.end_but)

    @property
    def admission(self) -> Admission | None:
        """Who may connect to this server; None without keys."""
        return self._admission

    @property
    def pollable(self) -> zmq.Socket[bytes]:
        """The socket."""
        return self.socket

    @property
    def refused_connections(self) -> int:
        """Number of refused connection attempts: by their keys, or beyond the bound."""
        beyond = 0 if self._guard is None else self._guard.refused
        return beyond + self.refused_keys.total()

    @property
    def refused_keys(self) -> Counter[str]:
        """Of these, those by their keys, by reason."""
        return Counter() if self._admission is None else self._admission.refused(self._domain)

    def end(self, frame: Part | zmq.Frame) -> None:
        """End the connection that a message's first frame came from."""
        if isinstance(frame, zmq.Frame):
            end_connection(frame.get(zmq.SRCFD))

    def rebind(self, keys: ServerKeys) -> None:
        """Listen at the same address with another pair; all connections end, and come back.

        Raises:
            EndpointError: another process has taken the address.
        """
        address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.socket.unbind(address)
        keys.apply(self.socket)
        deadline = time.monotonic() + _REBIND_WITHIN_S
        while True:
            try:
                self.socket.bind(address)
                return
            except zmq.ZMQError as exc:  # the old listener may take a moment
                if exc.errno != zmq.EADDRINUSE or time.monotonic() > deadline:
                    raise EndpointError(
                        f"cannot listen at {address} with the new key: {exc.strerror}"
                    ) from exc
            time.sleep(_REBIND_EVERY_S)

    def reconnect(self, address: str, keys: ClientKeys) -> None:
        """Connect to the server again with these keys; messages on their way may be lost."""
        self.socket.disconnect(address)
        keys.apply(self.socket)
        self.socket.connect(address)

    def renew(self) -> None:
        """Connect to the server again, where nothing can be sent.

        A message that is sent now over a connection which lives would be lost.
        """
        address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.socket.disconnect(address)
        self.socket.connect(address)

    def send(self, parts: Sequence[Part]) -> Unsent | None:
        """Give a whole message to ZeroMQ without waiting.

        Parts under pyzmq's copy threshold (64 KiB) are copied, larger ones sent from their own
        memory.
        """
        last = len(parts) - 1
        try:
            for index, part in enumerate(parts):
                self.socket.send(part, _NO_WAIT if index == last else _MORE, copy=False)
        except zmq.Again:
            return "full"
        except zmq.ZMQError as exc:
            if exc.errno != zmq.EHOSTUNREACH:
                raise
            return "unreachable"
        return None

    def take(self) -> list[zmq.Frame] | None:
        """The frames of one waiting message (cut if too many), or None."""
        try:
            frame = self.socket.recv(_NO_WAIT, copy=False)
        except zmq.Again:
            return None
        frames = [frame]
        while frame.more:
            frame = self.socket.recv(_NO_WAIT, copy=False)
            # Two more than allowed: the routing id, and one that shows the decoder that there are
            # too many.
            if len(frames) < MAX_FRAMES + 2:
                frames.append(frame)
        return frames

    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        """Whether a message arrives within `timeout_s`."""
        poller = self._readable.get(wake)
        if poller is None:
            poller = self._readable[wake] = poller_of(self.socket)
            if wake is not None:
                poller.register(wake, zmq.POLLIN)
        ready = poller.poll(milliseconds(timeout_s))
        return any(source is self.socket for source, _ in ready)

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether a message can be sent within `timeout_s`; DEALER only."""
        if self._writable is None:
            self._writable = zmq.Poller()
            self._writable.register(self.socket, zmq.POLLOUT)
        return bool(self._writable.poll(milliseconds(timeout_s)))

    def close(self, linger_s: float) -> None:
        """Close the socket; unsent messages have `linger_s` seconds to leave."""
        if self._admission is not None:
            self._admission.forget(self._domain)
        self.socket.close(linger=milliseconds(linger_s))


def poller_of(*sockets: zmq.Socket[Any]) -> zmq.Poller:
    """A poller for messages at any of the sockets."""
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    return poller


def milliseconds(seconds: float) -> int:
    """Seconds as ZeroMQ's milliseconds, rounded up.

    Raises:
        ValueError: they are negative or not finite.
    """
    if not 0 <= seconds < math.inf:
        raise ValueError(f"expected a finite time of at least 0 s, got {seconds}")
    return math.ceil(seconds * 1000)
