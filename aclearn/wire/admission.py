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
from typing import Any, Final, NamedTuple

import zmq
from zmq.utils import z85

from aclearn.wire.keys import KeyPair
from aclearn.wire.monitor_messages import AllowedKey

_LOG = logging.getLogger(__name__)
_ZAP_ADDRESS = "inproc://zeromq.zap.01"  # fixed by ZeroMQ RFC 27
#: Connections of one key that are known, at most; its oldest has to connect again.
_MOST_CONNECTIONS: Final = 1 << 16
#: Seconds for which a handshake waits for the first list; it may take 3 s.
_LIST_WITHIN_S: Final = 2.0
#: Unknown keys that are named; further ones are only counted.
_MOST_NAMED: Final = 64
#: Why a connection is refused: its key is on no list, or was taken off.
UNKNOWN_KEY, REVOKED_KEY = "unknown_key", "revoked_key"


class _Mark(NamedTuple):
    """Which connection of all is meant, and the public half that it has proved."""

    number: int
    public: str

    def __str__(self) -> str:
        return f"{self.number} {self.public}"

    @classmethod
    def read(cls, text: str) -> _Mark:
        """The mark with that text."""
        number, public = text.split(" ")
        return cls(int(number), public)


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
        #: ZAP domain, which is one server's, of each connection by public half and number.
        self._connections: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        #: By ZAP domain: the newest connection that has sent a message from a descriptor.
        self._holders: defaultdict[bytes, dict[int, _Mark]] = defaultdict(dict)
        self._made = 0
        #: By ZAP domain.
        self._refused: defaultdict[bytes, Counter[str]] = defaultdict(Counter)
        self._cuts: dict[bytes, Callable[[set[int]], None]] = {}
        #: Public halves by the reason for which they were refused.
        self._told: defaultdict[str, set[str]] = defaultdict(set)
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
            for public in self._connections.keys() - valid:
                del self._connections[public]
            for domain, holders in self._holders.items():
                self._holders[domain] = {
                    descriptor: mark
                    for descriptor, mark in holders.items()
                    if mark.number in self._connections.get(mark.public, ())
                }
            kept = {domain: set(holders) for domain, holders in self._holders.items()}
            self.revision += 1
            self._listed.set()
            lost = {public for public, key in before.items() if not key.revoked} - valid
        if lost:
            for domain, cut in list(self._cuts.items()):
                cut(kept.get(domain, set()))

    def serve(self, domain: bytes, cut: Callable[[set[int]], None]) -> None:
        """Add a server; `cut` ends its connections but those with the given descriptors."""
        self._cuts[domain] = cut

    def forget(self, domain: bytes) -> None:
        """Remove a server."""
        self._cuts.pop(domain, None)
        with self._lock:
            self._holders.pop(domain, None)

    def closed(self, domain: bytes, descriptor: int) -> None:
        """A connection has ended: the next one with its descriptor may never say whose it is."""
        with self._lock:
            if domain in self._holders:
                self._holders[domain].pop(descriptor, None)

    def close(self) -> None:
        """Let no handshake wait for a list that will not come."""
        self._listed.set()

    def sender(self, frame: Any) -> tuple[str, AllowedKey | None]:
        """The mark of a message, and the key of its connection; None if that is not allowed now."""
        user, descriptor = frame.get(b"User-Id"), frame.get(zmq.SRCFD)
        mark = _Mark.read(user)
        with self._lock:
            domain = self._connections.get(mark.public, {}).get(mark.number)
            if domain is None:
                return user, None
            holders = self._holders[domain]
            older, holders[descriptor] = sorted((holders.get(descriptor, mark), mark))
            if older != holders[descriptor]:  # it is closed: another one has its descriptor
                self._connections.get(older.public, {}).pop(older.number, None)
            return user, self._keys[mark.public]

    def refused(self, domain: bytes) -> Counter[str]:
        """Number of refused connections of a server by reason."""
        with self._lock:
            return Counter(self._refused[domain])

    def _refuse(self, public: str, key: AllowedKey | None, domain: bytes) -> None:
        """Count a refused connection, and say so once for each key."""
        if key is None:
            name, reason = "", UNKNOWN_KEY
            words = f"a peer has a key that is not on this run's list; its public half is {public}"
        else:
            name, reason = key.name, REVOKED_KEY
            words = f"a peer has the key {name}, which was revoked or replaced"
        with self._lock:
            self._refused[domain][reason] += 1
            if public in self._told[reason] or (
                key is None and len(self._told[reason]) >= _MOST_NAMED
            ):
                return
            self._told[reason].add(public)
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
                connections = self._connections[public]
                connections[self._made] = domain
                if len(connections) > _MOST_CONNECTIONS:
                    del connections[next(iter(connections))]
                return str(_Mark(self._made, public)).encode()
        self._refuse(public, key, domain)
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
