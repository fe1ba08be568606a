"""Which keys may connect to the servers of a process, and whose message each is.

libzmq asks at each handshake (ZAP, ZeroMQ RFC 27), and marks all messages of a connection with our
answer. It cannot end the connection of one peer: a revoked key's messages are refused by that mark,
and the descriptors of its connections are shut down.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import zmq
from zmq.utils import z85

from aclearn.wire.keys import KeyPair
from aclearn.wire.monitor_messages import AllowedKey

_LOG = logging.getLogger(__name__)
_ZAP_ADDRESS = "inproc://zeromq.zap.01"  # fixed by ZeroMQ RFC 27
#: Connections whose key is known, at most; the oldest has to connect again.
_MOST_CONNECTIONS: Final = 1 << 16
#: Seconds for which a handshake waits for the first list; it may take 3 s.
_LIST_WITHIN_S: Final = 2.0
#: Why a connection is refused: its key is on no list, or was taken off.
UNKNOWN_KEY, REVOKED_KEY = "unknown_key", "revoked_key"


@dataclass(slots=True)
class _Connection:
    """A connection at the server of this ZAP domain; its descriptor is known by its messages."""

    key: AllowedKey
    domain: bytes
    descriptor: int | None = None


class Admission:
    """The list of allowed keys of one process, for the servers of one ZeroMQ context. Thread-safe.

    Before the first list nobody is admitted, and handshakes wait for it.

    Attributes:
        revision: grows with each new list.
        said: called with a sentence for each new reason to refuse a key; from a thread.
    """

    def __init__(self, context: zmq.Context[Any]) -> None:
        self.revision = 0
        self.said: Callable[[str], None] = lambda _: None
        self._lock = threading.Lock()
        self._keys: dict[str, AllowedKey] = {}
        self._connections: dict[str, _Connection] = {}
        self._made = 0
        #: By ZAP domain, which is one server's.
        self._refused: defaultdict[bytes, Counter[str]] = defaultdict(Counter)
        self._cuts: dict[bytes, Callable[[set[int]], None]] = {}
        self._told: set[tuple[str, str]] = set()
        self._listed = threading.Event()
        socket = own_socket(context, zmq.REP)
        try:
            socket.bind(_ZAP_ADDRESS)
        except zmq.ZMQError:
            socket.close()
            raise
        threading.Thread(
            target=self._answer, args=(socket,), name="aclearn-keys", daemon=True
        ).start()

    def allow(self, keys: Iterable[AllowedKey]) -> None:
        """Replace the list; connections with keys that are on it no more are ended."""
        with self._lock:
            before, self._keys = self._keys, {key.public: key for key in keys}
            valid = {public for public, key in self._keys.items() if not key.revoked}
            for public, key in before.items():
                # a key that is off the list is told from one that was never on it
                if public not in self._keys:
                    self._keys[public] = AllowedKey(public, key.name, key.roles, revoked=True)
            kept: defaultdict[bytes, set[int]] = defaultdict(set)
            for user, connection in list(self._connections.items()):
                public = connection.key.public
                if public not in valid:
                    del self._connections[user]
                    continue
                connection.key = self._keys[public]
                if connection.descriptor is not None:
                    kept[connection.domain].add(connection.descriptor)
            self.revision += 1
            self._listed.set()
            lost = {public for public, key in before.items() if not key.revoked} - valid
        if lost:
            for domain, cut in list(self._cuts.items()):
                cut(kept[domain])

    def serve(self, domain: bytes, cut: Callable[[set[int]], None]) -> None:
        """Add a server; `cut` ends its connections but those with the given descriptors."""
        self._cuts[domain] = cut

    def forget(self, domain: bytes) -> None:
        """Remove a server."""
        self._cuts.pop(domain, None)

    def close(self) -> None:
        """Let no handshake wait for a list that will not come."""
        self._listed.set()

    def sender(self, frame: Any) -> tuple[str, AllowedKey | None]:
        """The mark of a message, and the key of its connection; None if that is not allowed now."""
        user = frame.get(b"User-Id")
        with self._lock:
            connection = self._connections.get(user)
            if connection is None:
                return user, None
            connection.descriptor = frame.get(zmq.SRCFD)
            return user, connection.key

    def refused(self, domain: bytes) -> Counter[str]:
        """Number of refused connections of a server by reason."""
        with self._lock:
            return Counter(self._refused[domain])

    def refuse(self, key: AllowedKey | None, reason: str, domain: bytes) -> None:
        """Count a refused connection, and say so once for each key."""
        name = "" if key is None else key.name
        with self._lock:
            self._refused[domain][reason] += 1
            if (name, reason) in self._told:
                return
            self._told.add((name, reason))
        words = (
            "a peer has a key that is not on this run's list"
            if key is None
            else f"a peer has the key {name}, which was revoked or replaced"
        )
        _LOG.warning("event=key_refused reason=%s name=%s detail=%r", reason, name, words)
        self.said(words)

    def _answer(self, socket: zmq.Socket[bytes]) -> None:
        """Answers ZAP requests until the context is terminated."""
        try:
            while True:
                request = socket.recv_multipart()
                user = self._admit(request)
                # a temporary failure: after a final one libzmq's client never connects again
                status = (b"300", b"refused", b"") if user is None else (b"200", b"OK", user)
                request_id = request[1] if len(request) > 1 else b""
                socket.send_multipart([b"1.0", request_id, *status, b""])
        except zmq.ContextTerminated:
            pass
        finally:
            socket.close(linger=0)

    def _admit(self, request: list[bytes]) -> bytes | None:
        """A mark for a new connection; None if it is refused."""
        # version, request id, domain, address, identity, mechanism, credentials
        if len(request) != 7 or request[0] != b"1.0" or request[5] != b"CURVE":
            return None
        # a client may be told of this server before the list has come; a later try takes seconds
        self._listed.wait(_LIST_WITHIN_S)
        domain, public = request[2], z85.encode(request[6]).decode()
        with self._lock:
            key = self._keys.get(public)
            if key is not None and not key.revoked:
                self._made += 1
                user = str(self._made)
                self._connections[user] = _Connection(key, domain)
                if len(self._connections) > _MOST_CONNECTIONS:
                    del self._connections[next(iter(self._connections))]
                return user.encode()
        self.refuse(key, UNKNOWN_KEY if key is None else REVOKED_KEY, domain)
        return None


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """The pair that a server proves, and who may connect to it."""

    pair: KeyPair
    admission: Admission

    def apply(self, socket: zmq.Socket[Any]) -> None:
        """Set them; call before bind."""
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        _apply_pair(socket, self.pair)
        socket.curve_server = True


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """The pair that a client proves, and the public key that its server must prove."""

    pair: KeyPair
    server: str

    def apply(self, socket: zmq.Socket[Any]) -> None:
        """Set them; call before connect."""
        socket.curve_serverkey = self.server.encode()
        _apply_pair(socket, self.pair)


def _apply_pair(socket: zmq.Socket[Any], pair: KeyPair) -> None:
    socket.curve_publickey = pair.public.encode()
    socket.curve_secretkey = pair.secret.encode()


def own_socket(context: zmq.Context[Any], kind: int) -> zmq.Socket[bytes]:
    """A socket for a thread of its own."""
    # in a shadow context: another thread may close the sockets of `context`, but not this one
    socket: zmq.Socket[bytes] = zmq.Context.shadow(context).socket(kind)
    socket.linger = 0
    return socket
