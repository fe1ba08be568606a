"""Requests to a peer that the monitor names, through its restarts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Generic

from aclearn.errors import EndpointError
from aclearn.wire import Client, ErrorReply, Message, Peer
from services.role.context import RoleContext
from services.role.monitor_client import MonitorClient
from services.role.requests import Key, Requests, RetryPolicy, say_refusal

_LOGGER = logging.getLogger(__name__)
#: Seconds for messages that are on their way over a connection that is replaced.
_LAST_MESSAGES_WITHIN_S = 1.0


class PeerLink:
    """A client of one peer that reconnects when the peer restarts.

    Args:
        index: which of several peers that serve it, modulo their number.
        only: name of the one peer to connect to; None: any that serves the endpoint.
        suffix: tells the connection from others of this process to the endpoint.

    Attributes:
        client: of the peer's endpoint; None before the first peer, and without one.
        peer: the peer at the time of the connection; None as the client.
    """

    def __init__(
        self,
        context: RoleContext,
        endpoint: str,
        index: int = 0,
        suffix: str = "",
        *,
        only: str | None = None,
    ) -> None:
        self._context, self._endpoint, self._index = context, endpoint, index
        self._only = only
        self._suffix = suffix
        self._incarnation: str | None = None
        self._told: tuple[Peer, ...] | None = None
        self._there: list[str] = []
        self._passed_over = 0
        #: Public half of the pair that the connection proves.
        self._public: str | None = None
        self.client: Client | None = None
        self.peer: Peer | None = None

    @property
    def role(self) -> str:
        """The peer's role; empty before the first peer."""
        return "" if self.peer is None else self.peer.role

    def follow(self, monitor: MonitorClient) -> bool:
        """Connect to the current peer, or with a new key; True if the connection is another one.

        A peer whose key was revoked, or to which nobody can connect, is left for none.
        """
        public = None if self._context.key is None else self._context.key.pair.public
        # by identity, not by revision: a restarted monitor counts from 0 again
        if monitor.peers is self._told and public == self._public:
            return False
        self._told = monitor.peers
        serving = (
            peer
            for peer in monitor.peers
            if self._endpoint in peer.endpoints and self._only in (None, peer.name)
        )
        peers = sorted(serving, key=lambda peer: peer.name)
        if not peers:
            if self.client is not None and self._incarnation in monitor.revoked:
                self._disconnect()
                return True
            return False  # keep the connection: the monitor may be new and the peer alive
        there = [p.incarnation for p in peers]
        if there != self._there:
            # the skipped peer may be gone: each role starts again with its own
            self._there, self._passed_over = there, 0
        peer = peers[(self._index + self._passed_over) % len(peers)]
        if peer.incarnation == self._incarnation and public == self._public:
            return False
        if self.client is not None:
            same = peer.incarnation == self._incarnation
            self.client.close(linger_s=_LAST_MESSAGES_WITHIN_S if same else 0.0)
        self._incarnation, self._public = peer.incarnation, public
        self._connect(peer)
        return True

    def renew(self) -> bool:
        """Connect to the same peer again, if there is one; whether there is.

        What is on its way may be lost.
        """
        if self.client is None or self.peer is None:
            return False
        self.client.close()
        self._connect(self.peer)
        return True

    def _connect(self, peer: Peer) -> None:
        self.peer = peer
        try:
            self.client = self._context.connect(
                peer.endpoints[self._endpoint], self._suffix, server_key=peer.server_key
            )
        except EndpointError as error:
            self.client = self.peer = None
            _LOGGER.error("event=not_connected name=%s detail=%r", peer.name, str(error))
            return
        _LOGGER.info("event=connected role=%s name=%s", peer.role, peer.name)

    def _disconnect(self) -> None:
        """Close the connection, whose peer nobody may hear any more."""
        assert self.client is not None and self.peer is not None
        self.client.close()
        _LOGGER.warning("event=disconnected name=%s detail='its key was revoked'", self.peer.name)
        self.client = self.peer = self._incarnation = None

    def pass_over(self) -> None:
        """Let `follow` choose the next peer that serves the endpoint, until the list changes."""
        self._passed_over += 1
        self._told = None


class RequestClient(Generic[Key]):
    """Sends requests to one peer at a time, repeats them when due, and matches the answers.

    Args:
        take: handles a message of the peer; returns the key of the answered request, or None.

    Attributes:
        requests: the unanswered ones.
    """

    def __init__(
        self,
        link: PeerLink,
        policy: RetryPolicy,
        take: Callable[[Message], Key | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link, self._take, self._clock = link, take, clock
        self.requests = Requests[Key](policy)
        self._refusals: set[str] = set()

    def ask(self, key: Key, *messages: Message, sequence: int | None = None) -> bool:
        """Send a request, now or at a later `poll`; returns whether it was sent.

        Args:
            messages: those that have one answer; where a later one does not leave, all go again.
            sequence: their number; without it the channel numbers them.
        """
        now = self._clock()
        self.requests.add(key, (messages, sequence), now)
        return key in dict(self.requests.due(now)) and self._send(key, messages, sequence)

    def cancel(self, key: Key, notice: Message | None = None) -> None:
        """Cancel a request; a peer that has it gets the notice.

        A lost notice does no harm: the answer is ignored.
        """
        sent = self.requests.cancel(key)
        if sent and notice is not None and self.link.client is not None:
            self.link.client.send(notice)

    def poll(self, monitor: MonitorClient, timeout_s: float = 0.0) -> bool:
        """Handle received messages, replace a silent peer by the next, send due requests.

        Where there is no other peer, the connection is made anew: it may be dead, since libzmq
        makes none again after bytes that are no message.

        Args:
            timeout_s: longest wait for the first message.

        Returns:
            Whether the peer has changed.
        """
        self.receive(timeout_s)  # first: messages waiting in the socket are no silence
        now = self._clock()
        silent = self.requests.silent(now)
        if silent:
            self.link.pass_over()
        moved = self.link.follow(monitor)
        if moved:
            self.requests.moved(now)
        elif silent and self.link.renew():
            self.requests.moved(now, same_peer=True)
        if self.link.client is not None:
            for key, (messages, sequence) in self.requests.due(now):
                if not self._send(key, messages, sequence) and self.requests.in_order:
                    break  # the connection may come up before the next one
        return moved

    def receive(self, timeout_s: float) -> None:
        """Handle received messages, waiting up to `timeout_s` for the first."""
        client = self.link.client
        if client is None:
            time.sleep(timeout_s)
            return
        while (envelope := client.receive(timeout_s)) is not None:
            timeout_s = 0.0
            now, message = self._clock(), envelope.message
            self.requests.heard(now)
            if isinstance(message, ErrorReply):
                if message.reason == "queue_full":
                    self.requests.no_room(now)
                else:
                    # it will be refused again: the log must explain why this role does not continue
                    say_refusal(self._refusals, self.link.role, message)
            if (key := self._take(message)) is not None:
                self.requests.answered(key, now)

    def _send(self, key: Key, messages: Sequence[Message], sequence: int | None) -> bool:
        client = self.link.client
        sent = client is not None and all(client.send(m, sequence=sequence) for m in messages)
        self.requests.tried(key, self._clock(), sent=sent)
        return sent
