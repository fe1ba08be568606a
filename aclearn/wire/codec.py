"""Messages to frames and back: one msgpack header frame, then one raw frame per array.

The header is a map with exactly the keys `protocol`, `kind`, `run`, `incarnation`, `sequence`,
`fields` and `arrays`. `arrays` has one entry per array frame, `[field, dtype, dims]`, or `[field,
key, dtype, dims]` for a mapping, in the order of the message's fields. Arrays are C-contiguous and
little-endian.

Neither direction copies an array: a decoded one is a read-only view of its frame. No memory is
allocated for a size that only a header claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import zmq
from numpy.typing import NDArray

from aclearn.errors import WireError
from aclearn.wire.arrays import Part, decode_array, encode_array
from aclearn.wire.messages import PROTOCOL_VERSION, Envelope, Message
from aclearn.wire.monitor_messages import AllowedKey
from aclearn.wire.schema import COUNT, SCHEMAS, SHORT_TEXT, ArrayField, Schema

MAX_HEADER_BYTES = 64 * 1024
MAX_FRAMES = 256
MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Bound of one array. A socket ends the connection of a peer that sends more."""

REASONS = frozenset(
    {
        "empty",  # no frame
        "too_many_frames",
        "header_too_large",
        "bad_header",  # no msgpack, no map, a duplicate key, too deep
        "wrong_version",
        "unknown_kind",
        "wrong_fields",  # a field is missing or unknown
        "bad_field",  # a field of the wrong type or out of range
        "bad_array",  # a dtype, shape or order of arrays that the kind does not allow
        "wrong_frames",  # the number of frames differs from the header's
        "too_large",  # more bytes of arrays than this service's messages can have in this run
        "wrong_size",  # a frame's length differs from its dtype and shape
        "wrong_run",
        "unexpected_kind",  # a kind that this service does not accept
        "not_allowed",  # a kind, or a role, that the sender's key is not for
        "quota",  # more processes or unrolls than the sender's key may have
        "revoked_key",  # the sender's key was taken off the list
        "unknown_policy",  # a policy's name that this service does not know
        "bad_request",  # an act request whose observations do not fit the policy
        "queue_full",  # no room for an act request now; it may be repeated
        "bad_heartbeat",  # a heartbeat with implausible numbers
        "bad_unroll",  # an unroll whose arrays do not fit each other or the run
    }
)
"""Every value of `WireError.reason`."""

_HEADER_KEYS = {"protocol", "kind", "run", "incarnation", "sequence", "fields", "arrays"}
# msgpack makes an object for each byte of a hostile header; these bounds keep that to a few MiB.
_MAX_LIST, _MAX_MAP = 8192, 1024


def encode(message: Message, *, run: str, incarnation: str, sequence: int) -> list[Part]:
    """The frames of a message: the header as bytes, each array as a memoryview of its own memory.

    The arrays must not change until the frames are sent. Arrays that are not C-contiguous are
    copied.

    Raises:
        ValueError: the receiver would refuse the message; names the field and what was expected.
    """
    schema = SCHEMAS[type(message).__name__]
    fields = {}
    field_name = "header"
    try:
        envelope = (SHORT_TEXT(run), SHORT_TEXT(incarnation), COUNT(sequence))
        for field_name, rule in schema.fields.items():
            fields[field_name] = rule(getattr(message, field_name))
    except ValueError as exc:
        raise ValueError(f"{schema.kind}.{field_name}: {exc}") from exc
    entries: list[list[Any]] = []
    parts: list[Part] = [b""]
    for field in schema.arrays:
        for key, array in _arrays_of(field, getattr(message, field.name)):
            entry, part = encode_array(schema.kind, field, array)
            entries.append([field.name, *key, *entry])
            parts.append(part)
    header = msgpack.packb(
        {
            "protocol": PROTOCOL_VERSION,
            "kind": schema.kind,
            "run": envelope[0],
            "incarnation": envelope[1],
            "sequence": envelope[2],
            "fields": fields,
            "arrays": entries,
        }
    )
    if len(header) > MAX_HEADER_BYTES:
        raise ValueError(
            f"{schema.kind}: header of {len(header)} bytes, at most {MAX_HEADER_BYTES} are allowed"
        )
    if len(parts) > MAX_FRAMES:
        raise ValueError(f"{schema.kind}: {len(parts)} frames, at most {MAX_FRAMES} are allowed")
    parts[0] = header
    longest = max(len(part) for part in parts)
    if longest > MAX_FRAME_BYTES:
        raise ValueError(
            f"{schema.kind}: an array of {longest} bytes, at most {MAX_FRAME_BYTES} are allowed"
        )
    return parts


def _arrays_of(field: ArrayField, value: Any) -> list[tuple[list[str], Any]]:
    """The arrays of a field, each with its key, if the field has keys."""
    if field.form == "mapping":
        return [([SHORT_TEXT(key)], array) for key, array in value.items()]
    if field.form == "tuple":
        return [([], array) for array in value]
    return [] if field.form == "optional" and value is None else [([], value)]


def decode(
    frames: Sequence[Part | zmq.Frame],
    *,
    array_bytes: int | None = None,
    key: AllowedKey | None = None,
) -> Envelope:
    """The message in the frames; its arrays are read-only views that keep frames alive.

    Args:
        key: the sender's, for the envelope.
        array_bytes: most bytes of its arrays, which are not looked at if they have more; None for
            no bound.

    Raises:
        WireError: the frames are no message of this protocol; its reason is one of `REASONS`. No
            other exception leaves this function, whatever the bytes.
    """
    if not frames:
        raise WireError("empty", "a message without frames")
    if len(frames) > MAX_FRAMES:
        raise WireError(
            "too_many_frames", f"{len(frames)} frames, at most {MAX_FRAMES} are allowed"
        )
    header = _decode_header(buffer_of(frames[0]))
    kind = header["kind"]
    schema = SCHEMAS.get(kind) if type(kind) is str else None
    if schema is None:
        raise WireError("unknown_kind", "the header names an unknown kind of message")
    field_name = "header"
    fields = header["fields"]
    if type(fields) is not dict or fields.keys() != schema.fields.keys():
        raise WireError("wrong_fields", f"{kind} has exactly the fields {sorted(schema.fields)}")
    try:
        run = SHORT_TEXT(header["run"])
        incarnation = SHORT_TEXT(header["incarnation"])
        sequence = COUNT(header["sequence"])
        for field_name, rule in schema.fields.items():
            fields[field_name] = rule(fields[field_name])
    except ValueError as exc:
        raise WireError("bad_field", f"{kind}.{field_name}: {exc}") from exc
    entries = header["arrays"]
    if type(entries) is not list:
        raise WireError("bad_array", "the header's arrays are not a list")
    size = sum(len(buffer_of(frame)) for frame in frames[1:])
    if array_bytes is not None and size > array_bytes:
        raise WireError(
            "too_large",
            f"{kind}: {size} bytes of arrays; messages to this service have at most {array_bytes} "
            "in this run (actors.envs_per_group, actors.unroll_length)",
        )
    if schema.arrays or entries or len(frames) != 1:
        _decode_arrays(schema, entries, frames, fields)
    return Envelope(run, incarnation, sequence, schema.type(**fields), key)


def buffer_of(frame: Part | zmq.Frame) -> Part:
    """The bytes of a frame, not copied."""
    return frame.buffer if isinstance(frame, zmq.Frame) else frame


def _unique_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("duplicate key")
    return mapping


def _decode_header(data: Part) -> dict[str, Any]:
    size = len(data)
    if size > MAX_HEADER_BYTES:
        raise WireError("header_too_large", f"{size} bytes, at most {MAX_HEADER_BYTES} are allowed")
    try:
        header = msgpack.unpackb(
            data,
            object_pairs_hook=_unique_keys,
            max_array_len=_MAX_LIST,
            max_map_len=_MAX_MAP,
        )
    except (ValueError, TypeError, OverflowError, RecursionError, MemoryError) as exc:
        # The exception's text may quote the bytes.
        raise WireError("bad_header", f"{size} bytes: {type(exc).__name__}") from None
    if type(header) is not dict:
        raise WireError("bad_header", "the header is not a map")
    version = header.get("protocol")
    if type(version) is not int or version != PROTOCOL_VERSION:
        spoken = version if type(version) is int else "unknown"
        raise WireError(
            "wrong_version",
            f"the peer speaks protocol {spoken}, this end speaks protocol {PROTOCOL_VERSION}; all "
            "roles of a run need the same aclearn (rebuild the image)",
        )
    if header.keys() != _HEADER_KEYS:
        raise WireError("bad_header", f"a header has exactly the keys {sorted(_HEADER_KEYS)}")
    return header


def _decode_arrays(
    schema: Schema,
    entries: list[Any],
    frames: Sequence[Part | zmq.Frame],
    fields: dict[str, Any],
) -> None:
    """Adds the arrays to `fields`; the header's entries and the frames must match one to one."""
    if len(entries) != len(frames) - 1:
        raise WireError(
            "wrong_frames",
            f"{schema.kind}: {len(entries)} arrays in the header, {len(frames) - 1} frames",
        )
    names, at = [_field_of(entry) for entry in entries], 0
    for field in schema.arrays:
        where = f"{schema.kind}.{field.name}"
        found: list[tuple[str, NDArray[Any]]] = []
        most = len(names) if field.form in ("mapping", "tuple") else at + 1
        while at < min(most, len(names)) and names[at] == field.name:
            found.append(_decode_entry(where, field, entries[at], frames[at + 1]))
            at += 1
        if field.form == "mapping":
            fields[field.name] = dict(found)
            if len(fields[field.name]) != len(found):
                raise WireError("bad_array", f"{where}: the same key twice")
        elif field.form == "tuple":
            fields[field.name] = tuple(array for _, array in found)
        elif found:
            fields[field.name] = found[0][1]
        elif field.form == "optional":
            fields[field.name] = None
        else:
            raise WireError("bad_array", f"{where}: missing, or not in its place")
    if at < len(names):
        raise WireError("bad_array", f"{schema.kind}: an unknown array, or one not in its place")


def _field_of(entry: Any) -> Any:
    """The field name in an entry of the header's arrays."""
    if type(entry) is not list or not entry:
        raise WireError("bad_array", "an entry of the header's arrays is not a list")
    return entry[0]


def _decode_entry(
    where: str, field: ArrayField, entry: list[Any], frame: Part | zmq.Frame
) -> tuple[str, NDArray[Any]]:
    """The array's key, "" for a field without keys, and the array."""
    keyed = field.form == "mapping"
    if len(entry) != 3 + keyed:
        form = "[field, key, dtype, dims]" if keyed else "[field, dtype, dims]"
        raise WireError("bad_array", f"{where}: expected {form}")
    try:
        key = SHORT_TEXT(entry[1]) if keyed else ""
    except ValueError as exc:
        raise WireError("bad_array", f"{where}: key: {exc}") from exc
    return key, decode_array(where, field, entry[-2], entry[-1], buffer_of(frame))
