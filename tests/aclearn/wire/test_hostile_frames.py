"""For any bytes, decode gives an envelope or a WireError, in little time and memory."""

from __future__ import annotations

import time
import tracemalloc

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.errors import WireError
from aclearn.wire import MAX_FRAMES, MAX_HEADER_BYTES, REASONS, Envelope, Weights, decode, encode
from aclearn.wire.schema import SCHEMAS

HEADER = {"run": "run-1", "incarnation": "ab12", "sequence": 12}
SECRET = "do-not-log-me"
KINDS_WITH_ARRAYS = sorted(kind for kind, schema in SCHEMAS.items() if schema.arrays)


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


def with_array(frames, entry):
    return with_header(frames, arrays=[entry])


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_a_header_cut_at_any_byte_is_refused(kind, samples):
    frames = frames_of(samples[kind])

    reasons = {outcome([frames[0][:size], *frames[1:]]) for size in range(len(frames[0]))}

    assert reasons == {"bad_header"}


@pytest.mark.parametrize("kind", KINDS_WITH_ARRAYS)
def test_an_array_frame_cut_at_any_byte_is_refused(kind, samples):
    frames = frames_of(samples[kind])

    reasons = {
        outcome([*frames[:index], frames[index][:size], *frames[index + 1 :]])
        for index in range(1, len(frames))
        for size in range(len(frames[index]))
    }

    assert reasons == {"wrong_size"}


@pytest.mark.parametrize("kind", KINDS_WITH_ARRAYS)
def test_an_array_frame_with_a_byte_more_is_refused(kind, samples):
    frames = frames_of(samples[kind])

    for index in range(1, len(frames)):
        longer = [*frames[:index], frames[index] + b"\0", *frames[index + 1 :]]
        assert outcome(longer) == "wrong_size"


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_any_byte_or_bit_flipped_gives_a_message_or_a_refusal(kind, samples):
    frames = frames_of(samples[kind])
    reasons = set()

    for index, frame in enumerate(frames):
        for offset in range(len(frame)):
            for mask in (0xFF, 1 << (offset % 8)):
                damaged = bytearray(frame)
                damaged[offset] ^= mask
                reasons.add(outcome([*frames[:index], bytes(damaged), *frames[index + 1 :]]))

    assert "bad_header" in reasons


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_each_field_missing_or_of_another_type_is_refused(kind, samples):
    frames = frames_of(samples[kind])
    fields = msgpack.unpackb(frames[0])["fields"]

    for name, value in fields.items():
        less = {key: fields[key] for key in fields if key != name}
        assert outcome(with_header(frames, fields=less)) == "wrong_fields"
        for other in (None, True, 1, 1.5, "text", b"bytes", [[]], {"key": None}, {1: 1}):
            if type(other) is type(value) and not isinstance(other, (list, dict)):
                continue
            changed = with_header(frames, fields={**fields, name: other})
            assert outcome(changed) in {"bad_field", "bad_header"}, (name, other)
    assert outcome(with_header(frames, fields={**fields, SECRET: 1})) == "wrong_fields"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"protocol": 99}, "wrong_version"),
        ({"protocol": True}, "wrong_version"),
        ({"protocol": "1"}, "wrong_version"),
        ({"kind": SECRET}, "unknown_kind"),
        ({"kind": ["HeartbeatReply"]}, "unknown_kind"),
        ({"kind": {}}, "unknown_kind"),
        ({"kind": "Peer"}, "unknown_kind"),  # a part of a message is no message
        ({"run": 1}, "bad_field"),
        ({"run": SECRET + "\n"}, "bad_field"),
        ({"run": "\u202egnp"}, "bad_field"),  # turns the direction of what a console shows
        ({"run": "\0"}, "bad_field"),
        ({"incarnation": None}, "bad_field"),
        ({"incarnation": "s" * 1025}, "bad_field"),
        ({"sequence": -1}, "bad_field"),
        ({"sequence": True}, "bad_field"),
        ({"sequence": 2**63}, "bad_field"),
        ({"sequence": 1.0}, "bad_field"),
        ({"fields": []}, "wrong_fields"),
        ({"fields": {}}, "wrong_fields"),
        ({"fields": {"revision": True}}, "bad_field"),
        ({"fields": {"revision": 1.0}}, "bad_field"),
        ({"fields": {"revision": -1}}, "bad_field"),
        ({"fields": {"revision": msgpack.Timestamp(0)}}, "bad_field"),
        ({"fields": {"revision": msgpack.ExtType(42, b"x")}}, "bad_field"),
        ({"arrays": {}}, "bad_array"),
        ({"arrays": None}, "bad_array"),
        ({"arrays": [["revision", "uint8", [0]]]}, "wrong_frames"),
        ({SECRET: 1}, "bad_header"),
    ],
)
def test_a_header_with_one_lie_is_refused_for_it(samples, changes, reason):
    assert outcome(with_header(frames_of(samples["HeartbeatReply"]), **changes)) == reason


def test_a_header_without_one_of_its_keys_is_refused(samples):
    frames = frames_of(samples["HeartbeatReply"])
    header = msgpack.unpackb(frames[0])

    for name in header:
        less = {key: value for key, value in header.items() if key != name}
        reason = "wrong_version" if name == "protocol" else "bad_header"
        assert outcome([msgpack.packb(less)]) == reason, name


@pytest.mark.parametrize(
    ("name", "most", "reason"),
    [
        ("episode_returns", [None] * 8192, "bad_field"),
        ("episode_returns", [None] * 8193, "bad_header"),
        ("counters", {f"{i:04}": 1 for i in range(1024)}, None),
        ("counters", {f"{i:04}": 1 for i in range(1025)}, "bad_header"),
    ],
)
def test_lists_and_maps_have_a_bound(samples, name, most, reason):
    frames = frames_of(samples["Heartbeat"])
    fields = {**msgpack.unpackb(frames[0])["fields"], name: most}

    assert outcome(with_header(frames, fields=fields)) == reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gauges", {"lag": float("nan")}),
        ("gauges", {"lag": float("inf")}),
        ("gauges", {"lag": 1}),
        ("gauges", {"g" * 1025: 1.0}),
        ("gauges", {b"lag": 1.0}),
        ("counters", {"env_steps": -1}),
        ("counters", {"env_steps": True}),
        ("counters", {"env_steps": 1.0}),
        ("counters", [["env_steps", 1]]),
        ("episode_returns", [1.0, "2"]),
        ("episode_returns", [1.0, [2.0]]),
        ("counters", {"updates": 2**63}),
        ("final", 0),
        ("counters", {"a\tb": 1}),
        ("counters", {"é" * 513: 1}),
        ("note", "n" * (48 * 1024 + 1)),
        *(("policy", name) for name in ("", "p" * 33, "-p", "a b", "a\n", "é", "a/b", 3, None)),
    ],
)
def test_a_value_out_of_bounds_is_refused(samples, name, value):
    frames = frames_of(samples["Heartbeat"])
    fields = {**msgpack.unpackb(frames[0])["fields"], name: value}

    assert outcome(with_header(frames, fields=fields)) == "bad_field"


@pytest.mark.parametrize(
    "peer",
    [
        None,
        {},
        {"role": "actor", "name": "a", "incarnation": "i"},
        {"role": "actor", "name": "a", "incarnation": "i", "endpoints": {}, "more": 1},
        {"role": "actor", "name": "a", "incarnation": 1, "endpoints": {}},
        {"role": "actor", "name": "a", "incarnation": "i", "endpoints": {"x": 1}},
    ],
)
def test_a_peer_that_is_not_quite_one_is_refused(samples, peer):
    fields = {"revision": 1, "peers": [peer]}

    assert outcome(with_header(frames_of(samples["Peers"]), fields=fields)) == "bad_field"


OBSERVATIONS = "observations", "joints"  # the sample has 24 bytes: float32 [2, 3]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ([*OBSERVATIONS, "float32", [3, 2]], None),
        ([*OBSERVATIONS, "uint8", [4, 6]], None),
        ([*OBSERVATIONS, "float32", [2, 4]], "wrong_size"),
        ([*OBSERVATIONS, "float32", [2, 0]], "wrong_size"),
        ([*OBSERVATIONS, "float32", [2**62, 2**62]], "bad_array"),
        # 2^63 * 2^63 is 0 and 2^63 * 2 + 6 is 6 in 64 bits
        ([*OBSERVATIONS, "float32", [2**63, 2**63]], "bad_array"),
        ([*OBSERVATIONS, "float32", [0, 2**62]], "bad_array"),
        ([*OBSERVATIONS, "float32", [2**20, 2**20]], "wrong_size"),
        ([*OBSERVATIONS, "float32", [-2, -3]], "bad_array"),
        ([*OBSERVATIONS, "float32", [2, 3.0]], "bad_array"),
        ([*OBSERVATIONS, "float32", [True, 6]], "bad_array"),
        ([*OBSERVATIONS, "float32", [6]], "bad_array"),
        ([*OBSERVATIONS, "float32", [2, 3, 1, 1, 1, 1]], "bad_array"),
        ([*OBSERVATIONS, "float32", [1] * 33], "bad_array"),
        ([*OBSERVATIONS, "float32", {}], "bad_array"),
        ([*OBSERVATIONS, "float32", None], "bad_array"),
        ([*OBSERVATIONS, "int64", [1, 3]], "bad_array"),
        ([*OBSERVATIONS, "object", [1, 3]], "bad_array"),
        ([*OBSERVATIONS, "O8", [1, 3]], "bad_array"),
        ([*OBSERVATIONS, ">f4", [2, 3]], "bad_array"),
        ([*OBSERVATIONS, "V1", [4, 6]], "bad_array"),
        ([*OBSERVATIONS, [["a", "<f4"]], [2, 3]], "bad_array"),
        ([*OBSERVATIONS, None, [2, 3]], "bad_array"),
        ([*OBSERVATIONS, "float32"], "bad_array"),
        ([*OBSERVATIONS, "float32", [2, 3], None], "bad_array"),
        ([*OBSERVATIONS, "key", "float32", [2, 3]], "bad_array"),
        ([SECRET, "float32", [2, 3]], "bad_array"),
        ([], "bad_array"),
        (None, "bad_array"),
        (1, "bad_array"),
        ({}, "bad_array"),
        ([["observations"], "joints", "float32", [2, 3]], "bad_array"),
        (["observations", "float32", [2, 3]], "bad_array"),
        (["observations", 1, "float32", [2, 3]], "bad_array"),
    ],
)
def test_what_the_header_says_of_an_array_must_be_true(samples, entry, reason):
    header, observations, _ = frames_of(samples["ActRequest"])

    assert outcome(with_array([header, observations], entry)) == reason


@pytest.mark.parametrize(
    "arrays",
    [
        [["tensors", "w", "float32", [1]], ["tensors", "w", "float32", [1]]],
        [["tensors", 1, "float32", [1]], ["tensors", "w", "float32", [1]]],
        [["tensors", "w" * 1025, "float32", [1]], ["tensors", "b", "float32", [1]]],
        [["tensors", "float32", [1]], ["tensors", "w", "float32", [1]]],
        [["tensors", "w", "float32", [1], 1], ["tensors", "b", "float32", [1]]],
        [["tensors", "w", "float64", [1]], ["tensors", "b", "float32", [1]]],
        [["tensors", "w", "float32", [1]], ["other", "b", "float32", [1]]],
    ],
)
def test_tensors_need_keys_of_their_own(samples, arrays):
    header = frames_of(samples["Weights"])[0]

    assert outcome([*with_header([header], arrays=arrays), bytes(4), bytes(4)]) == "bad_array"


@pytest.mark.parametrize("kind", KINDS_WITH_ARRAYS)
def test_an_array_that_is_left_out_is_refused_where_the_kind_needs_it(kind, samples):
    frames = frames_of(samples[kind])
    entries = msgpack.unpackb(frames[0])["arrays"]

    for field in SCHEMAS[kind].arrays:
        kept = [i for i, entry in enumerate(entries) if entry[0] != field.name]
        header = with_header(frames[:1], arrays=[entries[i] for i in kept])
        # without entries, a mapping or a tuple is empty
        expected = "bad_array" if field.form == "one" else None
        assert outcome([*header, *(frames[1 + i] for i in kept)]) == expected, field.name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["state", "float32", [1], 1], ["state", "float32", [1]]),
        (["state", "a", "float32", [1]], ["state", "b", "float32", [1]]),
        (["state", "float64", [1]], ["state", "float32", [1]]),
        (["state", "float32", []], ["state", "float32", [1]]),
        (["state", "float32", [1]], ["state", "float32", [-1]]),
        (["state", "float32", [1]], ["masks", "bool", [4]]),
        (["masks", "bool", [1, 1, 4]], ["state", "float32", [1]]),
        (["behaviour_parameters", "float32", [1, 1]], ["state", "float32", [1]]),
        (["behaviour_parameters", "float32", [1, 1, 1]], ["behaviour_parameters", "float32", [1]]),
    ],
)
def test_what_an_unroll_may_carry_besides_is_read_strictly(samples, first, second):
    frames = frames_of(samples["Unroll"])
    entries = msgpack.unpackb(frames[0])["arrays"]
    kept = [i for i, e in enumerate(entries) if e[0] not in {first[0], second[0], "state", "masks"}]
    header = with_header(frames[:1], arrays=[*(entries[i] for i in kept), first, second])
    assert outcome([*header, *(frames[1 + i] for i in kept), bytes(4), bytes(4)]) == "bad_array"


def test_arrays_out_of_their_order_are_refused(samples):
    frames = frames_of(samples["ActReply"])
    arrays = msgpack.unpackb(frames[0])["arrays"]
    swapped = with_header([frames[0], *frames[:0:-1]], arrays=arrays[::-1])

    assert outcome(swapped) == "bad_array"


def test_a_bool_that_is_neither_0_nor_1_is_refused(samples):
    frames = frames_of(samples["Unroll"])
    names = [entry[0] for entry in msgpack.unpackb(frames[0])["arrays"]]
    frames[1 + names.index("valid")] = b"\0\1\2\1\0\1"

    assert outcome(frames) == "bad_array"


def test_a_frame_too_few_or_too_many_is_refused(samples):
    frames = frames_of(samples["ActReply"])

    assert outcome(frames[:-1]) == "wrong_frames"
    assert outcome([*frames, b""]) == "wrong_frames"
    assert outcome([*frames_of(samples["HeartbeatReply"]), b""]) == "wrong_frames"
    assert outcome(frames * (MAX_FRAMES // 2)) == "too_many_frames"
    assert outcome([b""] * 10_000) == "too_many_frames"
    assert outcome([]) == "empty"
    assert outcome([b""]) == "bad_header"


def test_trailing_bytes_and_duplicate_keys_are_refused(samples):
    header = frames_of(samples["HeartbeatReply"])[0]
    # A map of 8 entries, the last of which is `protocol` again.
    doubled = b"\x88" + header[1:] + b"\xa8protocol\x03"

    assert outcome([header + b"\xc0"]) == "bad_header"
    assert outcome([doubled]) == "bad_header"
    assert (
        outcome([header.replace(b"\x81\xa8revision", b"\x82\xa8revision\x01\xa8revision")])
        == "bad_header"
    )


BOMBS = {
    "65,000 empty maps": b"\xdc\xfd\xe8" + b"\x80" * 65_000,
    "8,000 lists of 8 maps each": b"\xdc\x1f\x40" + (b"\x97" + b"\x80" * 7) * 8_000,
    "a list that claims 2^32-1 entries": b"\xdd\xff\xff\xff\xff",
    "a map that claims 2^32-1 entries": b"\xdf\xff\xff\xff\xff",
    "a string that claims 2^32-1 bytes": b"\xdb\xff\xff\xff\xff",
    "bytes that claim 2^32-1": b"\xc6\xff\xff\xff\xff",
    "an extension that claims 2^32-1 bytes": b"\xc9\xff\xff\xff\xff\x01",
    "lists nested 60,000 deep": b"\x91" * 60_000,
    "maps nested 30,000 deep": b"\x81\xa0" * 30_000,
    "lists nested 1,000 deep": b"\x91" * 1_000 + b"\xc0",
    "a key that is no UTF-8": b"\x81\xa1\xff\x01",
    "a key that is an int": b"\x81\x01\x01",
    "a key that is a list": b"\x81\x90\x01",
    "the unused byte": b"\xc1",
    "a header of one byte too many": b"\xc0" * (MAX_HEADER_BYTES + 1),
    "16 MiB": bytes(16 * 1024 * 1024),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_header_costs_little_memory_and_time(name):
    tracemalloc.start()
    try:
        started = time.thread_time()  # of this thread only: others may have the cores
        reason = outcome([BOMBS[name]])
        cpu_s = time.thread_time() - started
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert reason in {"bad_header", "header_too_large"}
    assert peak_bytes < 10 * 1024 * 1024
    assert cpu_s < 2.0  # 50 ms without the tracing


def test_a_field_nested_deep_is_refused_and_not_shown(samples):
    deep: list = []
    for _ in range(400):
        deep = [deep]
    frames = frames_of(samples["Heartbeat"])
    fields = msgpack.unpackb(frames[0])["fields"]

    assert outcome(with_header(frames, fields={**fields, "episode_returns": deep})) == "bad_field"


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_random_frames_are_refused(frames):
    assert outcome(frames) is not None


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["revision", "role", "x"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(deadline=None, max_examples=300)
@given(
    kind=st.sampled_from(sorted(SCHEMAS)),
    field=st.integers(0, 20),
    value=values,
    arrays=st.lists(values | st.lists(values, min_size=3, max_size=4), max_size=3),
    data=st.lists(st.binary(max_size=16), max_size=3),
    data_drawn=st.booleans(),
)
def test_any_value_in_any_field_gives_a_message_or_a_refusal(
    samples, kind, field, value, arrays, data, data_drawn
):
    frames = frames_of(samples[kind])
    fields = msgpack.unpackb(frames[0])["fields"]
    if fields:
        fields[sorted(fields)[field % len(fields)]] = value
    changed = with_header(frames, fields=fields)

    first = outcome(changed)
    second = outcome([*with_header(changed[:1], arrays=arrays), *(data if data_drawn else [])])

    assert first in {None, "bad_field"}
    assert second in {None} | REASONS


def test_the_bytes_of_arrays_are_bounded_exactly() -> None:
    tensors = {"a": np.zeros(6, np.float32), "b": np.zeros(4, np.float32)}  # 40 bytes
    frames = encode(Weights(0, 1, tensors), run="r", incarnation="i", sequence=1)
    assert decode(frames, array_bytes=40).message.version == 1
    with pytest.raises(WireError, match="40 bytes of arrays") as refused:
        decode(frames, array_bytes=39)
    assert refused.value.reason == "too_large"
