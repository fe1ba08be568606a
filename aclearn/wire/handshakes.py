"""Counts the connections that a socket with keys refuses."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

_LOG = logging.getLogger(__name__)
# NO_DETAIL is left out: it is also how a peer that merely hangs up looks.
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH


class RefusedConnections:
    """How many connections a bound CURVE socket has refused: no keys, or those of another cluster.

    A peer that is refused tries again, several times a second; each try counts. A thread reads
    the socket's events, so that libzmq never waits for a reader; it ends with the socket.

    Args:
        socket: bound, or about to be; of any thread.

    Attributes:
        count: refused connections so far; may be read from any thread.
    """

    def __init__(self, socket: zmq.Socket[Any]) -> None:
        self.count = 0
        address = f"inproc://refused-{uuid.uuid4().hex}"
        socket.monitor(address, _REFUSED | zmq.EVENT_MONITOR_STOPPED)
        # A shadow context: destroying the socket's context from its own thread must not close a
        # socket of this thread.
        events: zmq.Socket[bytes] = zmq.Context.shadow(socket.context).socket(zmq.PAIR)
        events.linger = 0
        events.connect(address)
        threading.Thread(
            target=self._read, args=(events,), name="aclearn-handshakes", daemon=True
        ).start()

    def _read(self, events: zmq.Socket[bytes]) -> None:
        try:
            while True:
                event = parse_monitor_message(events.recv_multipart())
                if event["event"] == zmq.EVENT_MONITOR_STOPPED:
                    return
                self.count += 1
                if self.count & (self.count - 1) == 0:  # tries repeat and must not fill the log
                    _LOG.warning(
                        "event=connection_refused endpoint=%s count=%d detail='a peer has other "
                        "keys than this cluster (network.keys_dir), or none'",
                        event["endpoint"].decode(errors="replace"),
                        self.count,
                    )
        except zmq.ContextTerminated:
            pass  # the other way in which the socket ends
        finally:
            events.close(linger=0)
