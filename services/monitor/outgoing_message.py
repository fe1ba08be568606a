"""What the monitor sends: a message and to whom."""

from __future__ import annotations

from dataclasses import dataclass

from aclearn.wire import Message


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to a member, by its routing id."""

    address: bytes
    message: Message
