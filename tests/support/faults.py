"""Faults at exact messages of roles in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgpack

from aclearn.wire import InProcessNetwork

Message = list[bytes]


@dataclass
class Fault:
    """What happens to certain messages.

    Attributes:
        kind: of the messages, e.g. "UnrollReply"; of a directive its own, e.g. "SetMix".
        change: gives the messages to deliver.
        nth: which of these messages, from 1; None for all.
        sender: role or name of the sending process; "" for any.
        receiver: role or name of the receiving process; "" for any.
        seen: number of these messages so far.
        hits: number of them with the fault.
    """

    kind: str
    change: Callable[[Message], Sequence[Message]]
    nth: int | None = 1
    sender: str = ""
    receiver: str = ""
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


class Faults:
    """The faults of a network; `observe` is called with sender, receiver and each message."""

    def __init__(self, network: InProcessNetwork) -> None:
        self.present: list[Fault] = []
        self.observe: Callable[[str, str, Message], None] = lambda sender, receiver, frames: None
        network.deliver = self._deliver

    def drop(self, kind: str, **which) -> Fault:
        return self.change(kind, lambda _: (), **which)

    def duplicate(self, kind: str, **which) -> Fault:
        return self.change(kind, lambda m: (m, m), **which)

    def change(self, kind: str, change: Callable[[Message], Sequence[Message]], **which) -> Fault:
        """Deliver the messages that `change` gives in place of the nth such message."""
        self.present.append(Fault(kind, change, **which))
        return self.present[-1]

    def _deliver(self, sender: str, receiver: str, message: Message) -> Sequence[Message]:
        self.observe(sender, receiver, message)
        if not self.present:
            return [message]
        header = msgpack.unpackb(message[0])
        kind = header["kind"]
        if kind == "DirectiveMessage":
            kind = header["fields"]["kind"]
        delivered = [message]
        for fault in [f for f in self.present if f.meets(kind, sender, receiver)]:
            delivered = [each for one in delivered for each in fault.change(one)]
        return delivered


def _is(name: str, wanted: str) -> bool:
    """Whether a role's name is the wanted name, or that of the wanted role."""
    return not wanted or wanted in (name, name.rpartition("-")[0])
