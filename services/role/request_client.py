"""The socket around `Requests`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic

from aclearn.wire import ErrorReply, Message
from services.role.monitor_client import MonitorClient
from services.role.peer_link import PeerLink
from services.role.refusal_log import say_refusal
from services.role.requests import Key, Requests, RetryPolicy


class RequestClient(Generic[Key]):
    """Sends requests to one peer at a time, repeats them when due, and matches the answers.

    Args:
        link: to the peer.
        policy: when requests are repeated.
        take: handles a message of the peer; returns the key of the answered request, or None.
        clock: monotonic seconds.

    Attributes:
        requests: the unanswered ones.
        link: to the peer.
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

    def ask(self, key: Key, message: Message, *, sequence: int | None = None) -> bool:
        """Send a request, now or at a later `poll`; returns whether it was sent."""
        self.requests.add(key, message, self._clock())
        return self._send(key, message, sequence)

    def cancel(self, key: Key, notice: Message | None = None) -> None:
        """Cancel a request; a peer that has it gets the notice.

        A lost notice does no harm: the answer is ignored.
        """
        sent = self.requests.cancel(key)
        if sent and notice is not None and self.link.client is not None:
            self.link.client.send(notice)

    def poll(self, monitor: MonitorClient, timeout_s: float = 0.0) -> bool:
        """Handle received messages, replace a silent peer by the next, send due requests.

        Args:
            monitor: has the peers.
            timeout_s: longest wait for the first message.

        Returns:
            Whether the peer has changed.
        """
        self.receive(timeout_s)  # first: messages waiting in the socket are no silence
        now = self._clock()
        if self.requests.silent(now):
            self.link.pass_over()
        moved = self.link.follow(monitor)
        if moved:
            self.requests.moved(now)
        if self.link.client is not None:
            for key, message in self.requests.due(now):
                self._send(key, message)
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
                self.requests.answered(key)

    def _send(self, key: Key, message: Message, sequence: int | None = None) -> bool:
        client = self.link.client
        sent = client is not None and client.send(message, sequence=sequence)
        self.requests.tried(key, self._clock(), sent=sent)
        return sent
