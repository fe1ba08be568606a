"""A client that is no member of the run."""

from __future__ import annotations

import json
import os
from typing import Any, TypeVar

import zmq

from aclearn.wire import (
    Client,
    DirectiveMessage,
    Hello,
    MembershipReply,
    Message,
    Peers,
    Status,
    StatusRequest,
    ZmqTransport,
    connect_dealer,
    new_incarnation,
)
from tests.support.waiting import wait_for

T = TypeVar("T")


class Visitor:
    """A client of a run's roles that is no member; it gets the peers from the monitor.

    Args:
        monitor: the monitor's address.
        run: name of the run.
    """

    def __init__(self, monitor: str, run: str = "r") -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self.incarnation = new_incarnation()
        self.run, self.monitor = run, monitor
        self.control = self.connect(monitor)

    def connect(self, endpoint: str, suffix: str = "") -> Client:
        """A valid client; with another suffix it does not take over the answers of the first."""
        routing_id = f"{self.incarnation}{suffix}".encode()
        socket_ = connect_dealer(self.context, endpoint, routing_id=routing_id)
        self._sockets.append(socket_)
        return Client(ZmqTransport(socket_), self.run, self.incarnation)

    def raw(self, endpoint: str) -> zmq.Socket[bytes]:
        socket_ = self.context.socket(zmq.DEALER)
        self._sockets.append(socket_)
        socket_.linger = 0
        socket_.connect(endpoint)
        return socket_

    def peers(self) -> Peers:
        number = int(self.incarnation[:4], 16)
        hello = Hello("compressor", number, "here", os.getpid(), {}, forced=True)
        return self.ask(self.control, hello, Peers)

    def status(self) -> dict[str, Any]:
        return json.loads(self.ask(self.control, StatusRequest(), Status).json)

    def endpoints(self) -> dict[str, str]:
        """Service → address, once every role with a service is there."""
        found: dict[str, str] = {}
        for peer in self.peers().peers:
            found |= peer.endpoints
        return found

    def ask(
        self, client: Client, message: Message, answer: type[T], *, sequence: int | None = None
    ) -> T:
        """The first answer of a type; directives and others are skipped."""
        sent = wait_for(
            lambda: client.send(message, sequence=sequence), f"{type(message).__name__} is sent"
        )
        assert sent

        def look() -> T | None:
            envelope = client.receive(0.1)
            found = envelope.message if envelope is not None else None
            assert not isinstance(found, MembershipReply | DirectiveMessage), found
            return found if isinstance(found, answer) else None

        return wait_for(look, f"{answer.__name__} answers {type(message).__name__}")

    def close(self) -> None:
        for socket_ in self._sockets:
            socket_.close(linger=0)
        self.context.destroy(linger=0)
