"""Messages between roles in one process: no socket, no thread, no wait.

As with ZeroMQ, there are routing ids, bounded queues and messages that cannot be sent. Faults can
be placed at exact messages.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgpack

from aclearn.errors import EndpointError
from aclearn.wire.arrays import Part
from aclearn.wire.sockets import QUEUE_MESSAGES
from aclearn.wire.transport import Unsent, milliseconds

#: The frames of a message.
Message = list[bytes]
#: Gives the messages to deliver in place of one: none, two, or another one.
Change = Callable[[Message], Sequence[Message]]


@dataclass
class Fault:
    """A fault of certain messages.

    Attributes:
        kind: of the messages, e.g. "UnrollReply"; of a directive its own, e.g. "SetMix".
        sender: role or name of the sending process; "" for any.
        receiver: role or name of the receiving process; "" for any.
        nth: which of these messages, from 1; None for all.
        change: gives the messages to deliver.
        delay_s: delay of the delivery, in seconds of the network's clock.
        seen: number of these messages so far.
        hits: number of them with the fault.
    """

    kind: str
    sender: str
    receiver: str
    nth: int | None
    change: Change
    delay_s: float = 0.0
    seen: int = 0
    hits: int = 0

    def meets(self, kind: str, sender: str, receiver: str) -> bool:
        """Whether a message has the fault; counts it."""
        if kind != self.kind or not (_is(sender, self.sender) and _is(receiver, self.receiver)):
            return False
        self.seen += 1
        hit = self.nth is None or self.seen == self.nth
        self.hits += hit
        return hit


class InProcessNetwork:
    """The ends of all connections of a run, by address and routing id.

    Args:
        clock: seconds, for delayed messages.

    Attributes:
        observe: called with sender, receiver and frames of each message.
    """

    observe: Callable[[str, str, Message], None] | None = None

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.clock = clock
        self.servers: dict[str, ServerEnd] = {}
        self.clients: dict[tuple[str, bytes], ClientEnd] = {}
        self.faults: list[Fault] = []

    @property
    def waiting(self) -> int:
        """Number of messages in the queues."""
        ends: list[ServerEnd | ClientEnd] = [*self.servers.values(), *self.clients.values()]
        return sum(len(end.inbox) for end in ends)

    def bind(self, owner: str, address: str) -> ServerEnd:
        """A server's end at an address of any form.

        Args:
            owner: name of the role, e.g. trainer-0.
            address: unique in the network.

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

    def drop(
        self, kind: str, *, nth: int | None = 1, sender: str = "", receiver: str = ""
    ) -> Fault:
        """Drop the nth such message."""
        return self.change(kind, lambda _: (), nth=nth, sender=sender, receiver=receiver)

    def duplicate(
        self, kind: str, *, nth: int | None = 1, sender: str = "", receiver: str = ""
    ) -> Fault:
        """Deliver the nth such message twice."""
        return self.change(kind, lambda m: (m, m), nth=nth, sender=sender, receiver=receiver)

    def delay(
        self,
        kind: str,
        seconds: float,
        *,
        nth: int | None = 1,
        sender: str = "",
        receiver: str = "",
    ) -> Fault:
        """Delay the nth such message, and those behind it in its queue."""
        fault = self.change(kind, lambda m: (m,), nth=nth, sender=sender, receiver=receiver)
        fault.delay_s = seconds
        return fault

    def change(
        self,
        kind: str,
        change: Change,
        *,
        nth: int | None = 1,
        sender: str = "",
        receiver: str = "",
    ) -> Fault:
        """Deliver the messages that `change` gives in place of the nth such message."""
        fault = Fault(kind, sender, receiver, nth, change)
        self.faults.append(fault)
        return fault

    def pass_faults(
        self, parts: Sequence[Part], sender: str, receiver: str
    ) -> list[tuple[float, Message]]:
        """The messages to deliver in place of one, each with its time."""
        message = [bytes(part) for part in parts]  # the sender may change its arrays afterwards
        if self.observe is not None:
            self.observe(sender, receiver, message)
        if not self.faults:
            return [(0.0, message)]
        delivered, due_at = [message], 0.0
        header = msgpack.unpackb(message[0])
        kind = header["kind"]
        if kind == "DirectiveMessage":
            kind = header["fields"]["kind"]
        for fault in [f for f in self.faults if f.meets(kind, sender, receiver)]:
            delivered = [each for one in delivered for each in fault.change(one)]
            due_at = max(due_at, self.clock() + fault.delay_s if fault.delay_s else 0.0)
        return [(due_at, each) for each in delivered]


class _End:
    """Common part of both ends: an inbox, first in, first out."""

    pollable = None
    refused_connections = 0

    def __init__(self, network: InProcessNetwork, owner: str, address: str) -> None:
        self.network, self.owner, self.address = network, owner, address
        self.inbox: deque[tuple[float, Message]] = deque()

    def take(self) -> Message | None:
        """The frames of the next message, or None."""
        return self.inbox.popleft()[1] if self._due() else None

    def wait(self, timeout_s: float, wake: int | None = None) -> bool:
        """Whether there is a message; no role runs meanwhile that could send one."""
        milliseconds(timeout_s)  # raises for what ZeroMQ refuses
        return self._due()

    def _due(self) -> bool:
        return bool(self.inbox) and self.inbox[0][0] <= self.network.clock()


class ServerEnd(_End):
    """As a ROUTER: any number of clients, each known by its routing id."""

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
        client.inbox += self.network.pass_faults(parts[1:], self.owner, client.owner)
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
    """As a DEALER: connects to the server at its address, now or later."""

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
        for due_at, message in self.network.pass_faults(parts, self.owner, server.owner):
            server.waiting[self.routing_id] += 1
            server.inbox.append((due_at, [self.routing_id, *message]))
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


def _is(name: str, wanted: str) -> bool:
    """Whether a role's name is the wanted name, or that of the wanted role."""
    return not wanted or wanted in (name, name.rpartition("-")[0])
