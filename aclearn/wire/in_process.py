"""Messages between roles in one process: no socket, no thread, no wait.

As with ZeroMQ, there are routing ids, bounded queues and messages that cannot be sent.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

import zmq

from aclearn.errors import EndpointError
from aclearn.wire.admission import ClientKeys, ServerKeys
from aclearn.wire.arrays import Part
from aclearn.wire.sockets import QUEUE_MESSAGES
from aclearn.wire.transport import Unsent, milliseconds

#: The frames of a message.
Message = list[bytes]
#: Gives, from sender, receiver and a message, those that arrive: none, two, or another one.
Deliver = Callable[[str, str, Message], Sequence[Message]]


class InProcessNetwork:
    """The ends of all connections of a run, by address and routing id."""

    def __init__(self) -> None:
        self.deliver: Deliver = lambda sender, receiver, message: (message,)
        self.servers: dict[str, ServerEnd] = {}
        self.clients: dict[tuple[str, bytes], ClientEnd] = {}

    def bind(self, owner: str, address: str) -> ServerEnd:
        """A server's end at an address of any form.

        Raises:
            EndpointError: the address is in use.
        """
        if address in self.servers:
            raise EndpointError(
                f"cannot bind {address}: {self.servers[address].owner} has it; close that first"
            )
        end = self.servers[address] = ServerEnd(self, owner, address)
        return end

    def connect(self, owner: str, address: str, *, routing_id: bytes) -> ClientEnd:
        """A client's end; it replaces an older one with the same routing id."""
        end = self.clients[address, routing_id] = ClientEnd(self, owner, address, routing_id)
        return end

    def disconnect(self, owner: str) -> None:
        """Close all ends of a role, as a kill does; their queues are dropped."""
        ends: list[ServerEnd | ClientEnd] = [*self.servers.values(), *self.clients.values()]
        for end in ends:
            if end.owner == owner:
                end.close(0.0)

    def carry(self, parts: Sequence[Part], sender: str, receiver: str) -> Sequence[Message]:
        """The messages that arrive in place of one."""
        # the sender may change its arrays afterwards
        return self.deliver(sender, receiver, [bytes(part) for part in parts])


class _End:
    """Common part of both ends: an inbox, first in, first out."""

    pollable = None
    refused_connections = 0
    admission = None  # no keys within a process

    def __init__(self, network: InProcessNetwork, owner: str, address: str) -> None:
        self.network, self.owner, self.address = network, owner, address
        self.inbox: deque[Message] = deque()

    @property
    def refused_keys(self) -> Counter[str]:
        """None: there are no keys."""
        return Counter()

    def end(self, frame: Part | zmq.Frame) -> None:
        """Do nothing: there is no connection to end."""

    def rebind(self, keys: ServerKeys) -> None:
        """Do nothing: no key is proved within a process."""

    def reconnect(self, address: str, keys: ClientKeys) -> None:
        """Do nothing: no key is proved within a process."""

    def renew(self) -> None:
        """Do nothing: no connection fails within a process."""

    def take(self) -> Message | None:
        """The frames of the next message, or None."""
        return self.inbox.popleft() if self.inbox else None

    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        """Whether there is a message; no role runs meanwhile that could send one."""
        milliseconds(timeout_s)  # raises for what ZeroMQ refuses
        return bool(self.inbox)


class ServerEnd(_End):
    """A ROUTER's end: any number of clients, each known by its routing id."""

    def __init__(self, network: InProcessNetwork, owner: str, address: str) -> None:
        super().__init__(network, owner, address)
        self.waiting: Counter[bytes] = Counter()

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether any client is connected."""
        return any(address == self.address for address, _ in self.network.clients)

    def send(self, parts: Sequence[Part]) -> Unsent | None:
        """Send a message to the client that its first part names."""
        client = self.network.clients.get((self.address, bytes(parts[0])))
        if client is None or self.network.servers.get(self.address) is not self:
            return "unreachable"
        if len(client.inbox) >= QUEUE_MESSAGES:
            return "full"
        client.inbox += self.network.carry(parts[1:], self.owner, client.owner)
        return None

    def take(self) -> Message | None:
        """The routing id and the frames of the next message, or None."""
        message = super().take()
        if message is not None:
            self.waiting[message[0]] -= 1
        return message

    def close(self, linger_s: float) -> None:
        """Close; its waiting messages are lost."""
        if self.network.servers.get(self.address) is self:
            del self.network.servers[self.address]
        self.inbox.clear()


class ClientEnd(_End):
    """A DEALER's end: connects to the server at its address, now or later."""

    def __init__(
        self, network: InProcessNetwork, owner: str, address: str, routing_id: bytes
    ) -> None:
        super().__init__(network, owner, address)
        self.routing_id = routing_id

    def send(self, parts: Sequence[Part]) -> Unsent | None:
        """Send a message to the server, if there is one."""
        server = self._server_with_room()
        if server is None:
            return "full"
        for message in self.network.carry(parts, self.owner, server.owner):
            server.waiting[self.routing_id] += 1
            server.inbox.append([self.routing_id, *message])
        return None

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether there is room; no role runs meanwhile that could make some."""
        return self._server_with_room() is not None

    def _server_with_room(self) -> ServerEnd | None:
        server, clients = self.network.servers.get(self.address), self.network.clients
        connected = clients.get((self.address, self.routing_id)) is self
        if server is None or not connected:
            return None
        return server if server.waiting[self.routing_id] < QUEUE_MESSAGES else None

    def close(self, linger_s: float) -> None:
        """Close. Sent messages are delivered; its waiting messages are lost."""
        if self.network.clients.get((self.address, self.routing_id)) is self:
            del self.network.clients[self.address, self.routing_id]
        self.inbox.clear()
