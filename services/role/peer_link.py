"""A client that follows a peer through its restarts."""

from __future__ import annotations

import logging

from aclearn.wire import (
    Client,
    Peer,
)
from services.role.context import RoleContext
from services.role.monitor_client import MonitorClient

_LOGGER = logging.getLogger(__name__)


class PeerLink:
    """A client of one peer that reconnects when the peer restarts.

    Args:
        context: of the role.
        endpoint: the name of the peer's endpoint, e.g. weights.
        index: which of several peers that serve it, modulo their number.
        suffix: tells the connection from others of this process to the endpoint.

    Attributes:
        client: of the peer's endpoint; None before the first peer.
        peer: the peer at the time of the connection.
    """

    def __init__(
        self, context: RoleContext, endpoint: str, index: int = 0, suffix: str = ""
    ) -> None:
        self._context, self._endpoint, self._index = context, endpoint, index
        self._suffix = suffix
        self._incarnation: str | None = None
        self._told: tuple[Peer, ...] | None = None
        self._there: list[str] = []
        self._passed_over = 0
        self.client: Client | None = None
        self.peer: Peer | None = None

    @property
    def role(self) -> str:
        """The peer's role; empty before the first peer."""
        return "" if self.peer is None else self.peer.role

    def follow(self, monitor: MonitorClient) -> bool:
        """Connect to the current peer; True if it is another one."""
        # by identity, not by revision: a restarted monitor counts from 0 again
        if monitor.peers is self._told:
            return False
        self._told = monitor.peers
        serving = (peer for peer in monitor.peers if self._endpoint in peer.endpoints)
        peers = sorted(serving, key=lambda peer: peer.name)
        if not peers:
            return False  # keep the connection: the monitor may be new and the peer alive
        there = [p.incarnation for p in peers]
        if there != self._there:
            # the skipped peer may be gone: each role starts again with its own
            self._there, self._passed_over = there, 0
        peer = peers[(self._index + self._passed_over) % len(peers)]
        if peer.incarnation == self._incarnation:
            return False
        if self.client is not None:
            self.client.close()
        self._incarnation = peer.incarnation
        self.peer = peer
        self.client = self._context.connect(peer.endpoints[self._endpoint], self._suffix)
        _LOGGER.info("event=connected role=%s name=%s", peer.role, peer.name)
        return True

    def pass_over(self) -> None:
        """Let `follow` choose the next peer that serves the endpoint, until the list changes."""
        self._passed_over += 1
        self._told = None
