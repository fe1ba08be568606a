"""For any bytes, decode gives an envelope or a WireError, in little time and memory."""

from __future__ import annotations

import time
import tracemalloc

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.wire.codec import MAX_FRAMES, MAX_HEADER_BYTES, REASONS
from aclearn.wire.schema import SCHEMAS
from tests.aclearn.wire.frames import SECRET, fields_of, frames_of, outcome, with_header


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_a_frame_cut_at_any_byte_or_with_one_more_is_refused(kind, samples):
    frames = frames_of(samples[kind])
    for index, frame in enumerate(frames):
        lengths = [frame[:size] for size in range(len(frame))] + [frame + b"\0"]
        found = {outcome([*frames[:index], other, *frames[index + 1 :]]) for other in lengths}
        assert found == {"wrong_size" if index else "bad_header"}


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
    fields = fields_of(frames)
    for name, value in fields.items():
        less = {key: fields[key] for key in fields if key != name}
        assert outcome(with_header(frames, fields=less)) == "wrong_fields"
        for other in (None, True, 1, 1.5, "text", b"bytes", [[]], {"key": None}, {1: 1}):
            if type(other) is type(value) and not isinstance(other, (list, dict)):
                continue
            if (type(value), type(other)) == (float, int):  # converted
                continue
            changed = with_header(frames, fields={**fields, name: other})
            assert outcome(changed) in {"bad_field", "bad_header"}, (name, other)
    assert outcome(with_header(frames, fields={**fields, SECRET: 1})) == "wrong_fields"


@pytest.mark.parametrize(
    ("key", "lies", "reason"),
    [
        ("protocol", [99, True, "1"], "wrong_version"),
        # a part of a message, such as a peer, is no message
        ("kind", [SECRET, ["HeartbeatReply"], {}, "Peer"], "unknown_kind"),
        # U+202E turns the direction of what a console shows
        ("run", [1, SECRET + "\n", "\u202egnp", "\0"], "bad_field"),
        ("incarnation", [None, "s" * 1025], "bad_field"),
        ("sequence", [-1, True, 2**63, 1.0], "bad_field"),
        ("fields", [[], {}], "wrong_fields"),
        ("fields", [{"revision": each, "every_s": 0.0} for each in (True, 1.0, -1)], "bad_field"),
        ("fields", [{"revision": msgpack.Timestamp(0), "every_s": 0.0}], "bad_field"),
        ("fields", [{"revision": msgpack.ExtType(42, b"x"), "every_s": 0.0}], "bad_field"),
        ("arrays", [{}, None], "bad_array"),
        ("arrays", [[["revision", "uint8", [0]]]], "wrong_frames"),
        (SECRET, [1], "bad_header"),
    ],
)
def test_a_header_with_one_lie_or_without_one_of_its_keys_is_refused_for_it(
    samples, key, lies, reason
):
    frames = frames_of(samples["HeartbeatReply"])
    for lie in lies:
        assert outcome(with_header(frames, **{key: lie})) == reason, lie
    header = msgpack.unpackb(frames[0])
    if header.pop(key, None) is not None:
        missing = "wrong_version" if key == "protocol" else "bad_header"
        assert outcome([msgpack.packb(header)]) == missing


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("episode_returns", [[None] * 8192, [1.0, "2"], [1.0, [2.0]]], "bad_field"),
        ("episode_returns", [[None] * 8193], "bad_header"),
        ("gauges", [{"lag": float("nan")}, {"lag": float("inf")}, {"lag": True}], "bad_field"),
        ("gauges", [{"g" * 1025: 1.0}, {b"lag": 1.0}], "bad_field"),
        ("counters", [{"updates": each} for each in (-1, True, 1.0, 2**63)], "bad_field"),
        ("counters", [[["updates", 1]], {"a\tb": 1}, {"é" * 513: 1}], "bad_field"),
        ("counters", [{f"{i:04}": 1 for i in range(1024)}], None),
        ("counters", [{f"{i:04}": 1 for i in range(1025)}], "bad_header"),
        ("final", [0], "bad_field"),
        ("note", ["n" * (48 * 1024 + 1)], "bad_field"),
        ("policy", ["", "p" * 33, "-p", "a b", "a\n", "é", "a/b", 3, None], "bad_field"),
    ],
)
def test_a_value_or_a_size_out_of_bounds_is_refused(samples, name, values, reason):
    frames = frames_of(samples["Heartbeat"])
    for value in values:
        changed = with_header(frames, fields={**fields_of(frames), name: value})
        assert outcome(changed) == reason, value


_PEER = {"role": "actor", "name": "a", "incarnation": "i", "endpoints": {}, "generation": 0}
_PEER["server_key"] = ""


@pytest.mark.parametrize(
    "peer",
    [
        None,
        {},
        {key: value for key, value in _PEER.items() if key != "endpoints"},
        {**_PEER, "more": 1},
        {**_PEER, "incarnation": 1},
        {**_PEER, "endpoints": {"x": 1}},
    ],
)
def test_a_peer_that_is_not_quite_one_is_refused(samples, peer):
    frames = frames_of(samples["Peers"])
    fields = {"revision": 1, "revoked": []}
    assert outcome(with_header(frames, fields={**fields, "peers": [_PEER]})) is None
    assert outcome(with_header(frames, fields={**fields, "peers": [peer]})) == "bad_field"


def test_a_frame_too_few_or_too_many_is_refused(samples):
    frames = frames_of(samples["ActReply"])
    assert outcome(frames[:-1]) == outcome([*frames, b""]) == "wrong_frames"
    assert outcome([*frames_of(samples["HeartbeatReply"]), b""]) == "wrong_frames"
    assert outcome(frames * (MAX_FRAMES // 2)) == outcome([b""] * 10_000) == "too_many_frames"
    assert outcome([]) == "empty"
    assert outcome([b""]) == "bad_header"


def test_duplicate_keys_are_refused(samples):
    header = frames_of(samples["HeartbeatReply"])[0]
    # a map of 8 entries, the last of which is `protocol` again
    assert outcome([b"\x88" + header[1:] + b"\xa8protocol\x03"]) == "bad_header"
    twice = header.replace(b"\x82\xa8revision", b"\x83\xa8revision\x01\xa8revision")
    assert outcome([twice]) == "bad_header"


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
    fields = {**fields_of(frames), "episode_returns": deep}
    assert outcome(with_header(frames, fields=fields)) == "bad_field"


@settings(deadline=None, max_examples=100)
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


@settings(deadline=None, max_examples=100)
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
    fields = fields_of(frames)
    if fields:
        fields[sorted(fields)[field % len(fields)]] = value
    changed = with_header(frames, fields=fields)

    first = outcome(changed)
    second = outcome([*with_header(changed[:1], arrays=arrays), *(data if data_drawn else [])])

    assert first in {None, "bad_field"}
    assert second in {None} | REASONS
