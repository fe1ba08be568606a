"""The connections of a listening socket: bounded, and refused ones counted.

Without a bound, peers that connect and say nothing take every file descriptor of the process.
libzmq then aborts it (ipc), or its own files can no longer be opened.
"""

from __future__ import annotations

import logging
import resource
import socket as system_socket
import struct
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from aclearn.wire.admission import own_socket

_LOG = logging.getLogger(__name__)

# Without NO_DETAIL, which also occurs when a peer just disconnects.
#: Refusals of our own guard are counted there.
_NO_KEYS = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_WATCHED = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | _NO_KEYS | zmq.EVENT_MONITOR_STOPPED
#: The first frame of an event: its kind, and the connection's descriptor. pyzmq's own function
#: imports asyncio and TLS, a tenth of the imports of a role.
_EVENT = struct.Struct("=hi")
#: Events of a socket that libzmq keeps for a guard, so that a flood may be as many connections
#: ahead of it: 1000, which cannot be set, and those of the guard's own end.
_MOST_BEHIND = 1_001
#: Listening sockets of a process, at most, and its file descriptors that no connection may take.
_MOST_SERVERS, _OTHER_FILES = 2, 256
_SPARE_FILES = _OTHER_FILES + _MOST_SERVERS * _MOST_BEHIND


def most_connections() -> int:
    """The bound of one listening socket, by the process's limit of open files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 20
    return int((limit - min(limit // 2, _SPARE_FILES)) // _MOST_SERVERS)


class ConnectionGuard:
    """Counts a listening socket's connections; ends the newest ones beyond a bound.

    A thread reads the socket's events and ends with the socket. libzmq waits for it when it is a
    thousand events behind, for which the bound leaves room: no flood outruns it, where the limit
    of open files is 4516 or more. Connected peers are left alone.

    Attributes:
        closed: called with the descriptor of each connection that has ended; from the thread.
        refused: number of connections that were refused: beyond the bound, or without a handshake
            of this server's key. Such a peer tries again several times a second, and each attempt
            counts. May be read from any thread.
    """

    def __init__(self, socket: zmq.Socket[Any], *, most: int | None = None) -> None:
        self.closed: Callable[[int], None] = lambda descriptor: None
        self.refused = 0
        self._most = most_connections() if most is None else most
        self._open: set[int] = set()
        self._said: set[str] = set()
        self._kept: set[int] = set()
        self._wake, self._woken = system_socket.socketpair()
        self._wake.setblocking(False)
        address = f"inproc://connections-{uuid.uuid4().hex}"
        socket.monitor(address, _WATCHED)
        events = own_socket(socket.context, zmq.PAIR)
        events.rcvhwm = 1
        events.connect(address)
        threading.Thread(
            target=self._read, args=(events,), name="aclearn-connections", daemon=True
        ).start()

    def _read(self, events: zmq.Socket[bytes]) -> None:
        poller = zmq.Poller()
        poller.register(events, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        try:
            while True:
                asked = self._woken.fileno() in dict(poller.poll())
                if asked:
                    self._woken.recv(1)
                # of all connections that were there when it was asked: their events wait here
                for _ in range(_MOST_BEHIND):
                    if not events.poll(0):
                        break
                    if not self._take(events.recv_multipart()):
                        return
                if asked:
                    for descriptor in self._open - self._kept:
                        end_connection(descriptor)
        except zmq.ContextTerminated:
            pass  # the socket has ended with its context
        finally:
            events.close(linger=0)
            self._wake.close()
            self._woken.close()

    def _take(self, frames: list[bytes]) -> bool:
        """Take an event; False if it is the last one."""
        (kind, descriptor), endpoint = _EVENT.unpack(frames[0]), frames[1]
        if kind == zmq.EVENT_MONITOR_STOPPED:
            return False
        if kind == zmq.EVENT_ACCEPTED:
            self._open.add(descriptor)
            if len(self._open) > self._most and end_connection(descriptor):
                self._refuse(
                    f"there are {self._most} connections, as many as the limit of open "
                    "files (ulimit -n) allows",
                    endpoint,
                )
        elif kind == zmq.EVENT_DISCONNECTED:
            self._open.discard(descriptor)
            self.closed(descriptor)
        else:
            self._refuse(
                "a peer has no keys (network.keys_dir), or another key for this server",
                endpoint,
            )
        return True

    def end_but(self, kept: set[int]) -> None:
        """End all connections but those with the given descriptors; their peers connect again.

        The thread does so, once it has read of the connections that are there now.
        """
        self._kept = kept
        with suppress(OSError):  # the socket has ended
            self._wake.send(b" ")

    def _refuse(self, detail: str, endpoint: bytes) -> None:
        self.refused += 1
        if detail not in self._said:
            self._said.add(detail)
            place = endpoint.decode(errors="replace")
            _LOG.warning("event=connection_refused endpoint=%s detail=%r", place, detail)


def end_connection(descriptor: int) -> bool:
    """Whether this connection was shut down; libzmq closes it then."""
    try:
        connection = system_socket.socket(fileno=descriptor)
    except OSError:
        return False  # libzmq has closed it meanwhile
    try:
        connection.shutdown(system_socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        connection.detach()  # libzmq owns it
    return True
