"""One end of a connection for whole messages, and its implementation over ZeroMQ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import zmq

from aclearn.wire.arrays import Part
from aclearn.wire.codec import MAX_FRAMES
from aclearn.wire.connections import ConnectionGuard

#: The frames of a received message.
Frames = Sequence[Part | zmq.Frame]
#: Why a message could not be sent: the peer is gone; or its queue is full, or a client is not
#: connected.
Unsent = Literal["unreachable", "full"]

# Plain numbers: combining two members of an enumeration takes a microsecond for each frame.
_NO_WAIT, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)


class Transport(Protocol):
    """One end of a connection. Only the two waits block.

    At a server's end the first part of every message is the routing id of the client.
    """

    @property
    def pollable(self) -> zmq.Socket[bytes] | None:
        """The socket for a poller; None where messages arrive only between this thread's waits."""

    @property
    def refused_connections(self) -> int:
        """Number of connection attempts without this cluster's keys, or beyond the bound."""

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
    """A ROUTER or DEALER, from `bind_router` or `connect_dealer`."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        # kept, since `Socket.poll` makes a poller for each call
        self._readable: dict[int | None, zmq.Poller] = {}
        self._writable: zmq.Poller | None = None
        self._guard = ConnectionGuard(socket) if socket.type == zmq.ROUTER else None

    @property
    def pollable(self) -> zmq.Socket[bytes]:
        """The socket."""
        return self.socket

    @property
    def refused_connections(self) -> int:
        """Number of connection attempts without this cluster's keys, or beyond the bound."""
        return 0 if self._guard is None else self._guard.refused

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
