"""The codec returns its input, byte for byte the same in every release."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from aclearn.types import EpisodeCohort
from aclearn.wire import (
    MAX_FRAME_BYTES,
    ActRequest,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Peer,
    Peers,
    Status,
    Weights,
    decode,
    encode,
)
from aclearn.wire.codec import MAX_FRAMES, MAX_HEADER_BYTES
from aclearn.wire.messages import PROTOCOL_VERSION
from aclearn.wire.schema import SCHEMAS

GOLDEN = json.loads((Path(__file__).parent / "golden" / "messages.json").read_text())
HEADER = {"run": "run-1", "incarnation": "ab12", "sequence": 12}

short = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=20)
count = st.integers(0, 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)


def as_bytes(parts):
    return [bytes(part) for part in parts]


def assert_same(left, right):
    """Equal values, and for arrays equal dtype, shape and bits."""
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, tuple):
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif dataclasses.is_dataclass(left):
        for field in dataclasses.fields(left):
            assert_same(getattr(left, field.name), getattr(right, field.name))
    else:
        assert left == right


def asked(array):
    return ActRequest(1, {"observation": array})


def round_trip(message):
    return decode(as_bytes(encode(message, **HEADER))).message


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_every_kind_is_written_as_its_golden_bytes_and_read_from_them(kind, samples):
    assert [part.hex() for part in as_bytes(encode(samples[kind], **HEADER))] == GOLDEN[kind]
    envelope = decode([bytes.fromhex(frame) for frame in GOLDEN[kind]])
    assert (envelope.run, envelope.incarnation, envelope.sequence) == ("run-1", "ab12", 12)
    assert_same(envelope.message, samples[kind])


def test_an_array_that_no_socket_would_carry_is_not_sent():
    zeros = np.zeros(MAX_FRAME_BYTES // 4 + 1, np.float32)  # untouched pages
    encode(Weights(0, 0, {"w": zeros[1:]}), **HEADER)
    with pytest.raises(ValueError, match=f"Weights: an array of {MAX_FRAME_BYTES + 4} bytes"):
        encode(Weights(0, 0, {"w": zeros}), **HEADER)


def test_a_message_written_by_hand_after_the_msgpack_specification_is_read():
    def string(value: str) -> bytes:
        return bytes([0xA0 + len(value)]) + value.encode()

    entries = {
        "protocol": bytes([PROTOCOL_VERSION]),
        "kind": string("HeartbeatReply"),
        "run": string("run-1"),
        "incarnation": string("ab12"),
        "sequence": b"\x0c",
        "fields": b"\x82"
        + (string("revision") + b"\x03")
        + (string("every_s") + b"\xcb" + bytes(8)),
        "arrays": b"\x90",
    }
    header = b"\x87" + b"".join(string(key) + value for key, value in entries.items())
    assert decode([header]).message == HeartbeatReply(3)
    assert as_bytes(encode(HeartbeatReply(3), **HEADER)) == [header]


peers = st.builds(Peer, short, short, short, st.dictionaries(short, short, max_size=3))
arrays = {
    "tensors": npst.arrays(np.float32, npst.array_shapes(min_dims=0, max_dims=6, min_side=0)),
    "observations": npst.arrays(
        st.sampled_from([np.uint8, np.float32]),
        npst.array_shapes(min_dims=2, max_dims=5, min_side=0, max_side=4),
    ),
}


@settings(deadline=None, max_examples=100)
@given(
    st.builds(Hello, short, count, short, count, st.dictionaries(short, short, max_size=5))
    | st.builds(Peers, count, st.lists(peers, max_size=5))
    | st.builds(
        Heartbeat,
        counters=st.dictionaries(short, count, max_size=5),
        gauges=st.dictionaries(short, finite, max_size=5),
        episode_returns=st.lists(finite, max_size=5),
        cohorts=st.lists(st.builds(EpisodeCohort, finite, count, finite, count), max_size=5),
        final=st.booleans(),
        note=st.text(max_size=200),
    )
    | st.builds(Weights, count, count, st.dictionaries(short, arrays["tensors"], max_size=5))
    | st.builds(asked, arrays["observations"])
)
def test_any_message_comes_back_as_it_was(message):
    assert_same(round_trip(message), message)


def test_arrays_are_sent_from_their_own_memory_and_strided_ones_in_the_order_of_their_indices(
    samples,
):
    parts, screen = encode(samples["Unroll"], **HEADER), samples["Unroll"].observations["screen"]
    assert np.shares_memory(np.frombuffer(parts[1], np.uint8), screen)
    strided = np.arange(12, dtype=np.float32).reshape(3, 4).T
    decoded = round_trip(asked(strided)).observations["observation"]
    assert decoded.tolist() == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]


def test_decoded_arrays_are_read_only_views_of_their_frames_and_aligned():
    header, data = as_bytes(encode(asked(np.ones((2, 3), np.float32)), **HEADER))

    def decoded(part):
        return decode([header, part]).message.observations["observation"]

    assert np.shares_memory(decoded(data), np.frombuffer(data, np.uint8))
    at_an_odd_address = memoryview(bytes(1) + data)[1:]
    for part in (data, zmq.Frame(data), at_an_odd_address):
        array = decoded(part)  # which keeps its frame alive
        assert array.tolist() == [[1, 1, 1], [1, 1, 1]] and array.flags.aligned
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 2
    empty = round_trip(asked(np.ones((0, 3), np.float32))).observations["observation"]
    assert empty.shape == (0, 3) and not empty.flags.writeable


def test_numpy_scalars_ints_for_floats_and_counters_are_converted_by_the_sender():
    heartbeat = Heartbeat(
        counters={"updates": np.int64(3)},
        gauges={"loss": np.float32(0.5), "lag": 2},
        dropped=Counter(lag=20),
        episode_returns=[np.float64(1.5)],
        final=np.bool_(True),
    )
    decoded = round_trip(heartbeat)
    assert (decoded.counters, decoded.gauges) == ({"updates": 3}, {"loss": 0.5, "lag": 2.0})
    assert (decoded.episode_returns, decoded.final) == ([1.5], True)
    assert type(decoded.dropped) is dict and decoded.dropped == {"lag": 20}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (HeartbeatReply(-1), "HeartbeatReply.revision: expected an int from 0"),
        (HeartbeatReply(True), "HeartbeatReply.revision: expected an int, got bool"),
        (HeartbeatReply(2**63), "HeartbeatReply.revision: expected an int"),
        (Status("x" * (48 * 1024 + 1)), "Status.json: expected at most 49152 bytes"),
        (Hello("a\nb", 0, "", 1, {}), "Hello.role: expected one line"),
        (Hello("r" * 1025, 0, "", 1, {}), "Hello.role: expected at most 1024 bytes"),
        (Hello("", 0, "", 1, {"a" * 1000 + str(i): "b" * 1000 for i in range(40)}), "header of"),
        (Hello("é" * 513, 0, "", 1, {}), "Hello.role: expected at most 1024 bytes"),
        (Peers(1, [{"role": "actor"}]), "Peers.peers: expected a map with exactly"),
        (Peers(1, [Peer("actor", "a", 7, {})]), "Peers.peers: expected a str, got int"),
        (Heartbeat(gauges={"loss": float("nan")}), "gauges: expected a finite float"),
        (Heartbeat(gauges={"loss": True}), "gauges: expected a float, got bool"),
        (Heartbeat(final=1), "Heartbeat.final: expected a bool, got int"),
        (asked([[1.0]]), "ActRequest.observations: expected an array, got list"),
        (asked(None), "ActRequest.observations: expected an array, got NoneType"),
        (asked(np.ones((2, 2), np.int32)), "expected dtype float32 or uint8, got int32"),
        (asked(np.ones((1,) * 6, np.uint8)), "expected 2 to 5 dimensions, got shape"),
        (asked(np.ones((2, 2))), "expected dtype float32 or uint8, got float64"),
        (asked(np.ones((2, 2), ">f4")), "expected dtype float32 or uint8, got >f4"),
        (asked(np.ones(2, np.float32)), "expected 2 to 5 dimensions, got shape"),
        (Weights(0, 0, {"a\nb": np.zeros(1, np.float32)}), "expected one line"),
        (Weights(0, 0, {str(i): np.zeros(1, np.float32) for i in range(256)}), "257 frames"),
    ],
)
def test_a_message_that_the_receiver_would_refuse_is_not_sent(message, words):
    with pytest.raises(ValueError, match=words):
        encode(message, **HEADER)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": "a\nb"}, "HeartbeatReply.header: expected one line"),
        ({"incarnation": "s" * 1025}, "HeartbeatReply.header: expected at most 1024 bytes"),
        ({"sequence": -1}, "HeartbeatReply.header: expected an int from 0"),
    ],
)
def test_a_header_that_the_receiver_would_refuse_is_not_sent(changes, words):
    with pytest.raises(ValueError, match=words):
        encode(HeartbeatReply(3), **{**HEADER, **changes})


def test_as_many_frames_and_as_long_a_header_as_may_be_are_sent_and_read():
    tensors = {str(i): np.full(1, i, np.float32) for i in range(MAX_FRAMES - 1)}
    assert len(encode(Weights(0, 0, tensors), **HEADER)) == MAX_FRAMES
    assert_same(round_trip(Weights(0, 0, tensors)), Weights(0, 0, tensors))

    def hello(last):
        values = {str(i): "v" * 1010 for i in range(64)}
        return Hello("", 0, "", 1, {**values, "last": "v" * last})

    # from 256 bytes on, each more makes the header one longer
    missing = MAX_HEADER_BYTES - len(encode(hello(256), **HEADER)[0])
    longest = hello(256 + missing)
    assert 0 < missing <= 1024 - 256
    assert len(encode(longest, **HEADER)[0]) == MAX_HEADER_BYTES
    assert round_trip(longest) == longest
