"""Frames of messages with lies in them, and what the decoder says."""

from __future__ import annotations

import msgpack

from aclearn.errors import WireError
from aclearn.wire import Envelope, decode, encode
from aclearn.wire.codec import REASONS

HEADER = {"run": "run-1", "incarnation": "ab12", "sequence": 12}
SECRET = "do-not-log-me"


def frames_of(message):
    return [bytes(part) for part in encode(message, **HEADER)]


def outcome(frames):
    """The reason of the refusal, or None for an envelope; other exceptions fail the test."""
    try:
        envelope = decode(frames)
    except WireError as exc:
        assert exc.reason in REASONS
        assert SECRET not in str(exc)
        assert len(str(exc)) < 1000
        return exc.reason
    assert isinstance(envelope, Envelope)
    return None


def with_header(frames, **changes):
    header = msgpack.unpackb(frames[0])
    header.update(changes)
    return [msgpack.packb(header), *frames[1:]]


def fields_of(frames):
    return msgpack.unpackb(frames[0])["fields"]


def entries_of(frames):
    return msgpack.unpackb(frames[0])["arrays"]
