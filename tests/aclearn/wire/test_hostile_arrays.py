"""What a header says of arrays must be true, complete and in its order."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.errors import WireError
from aclearn.wire import Weights, decode, encode
from aclearn.wire.schema import SCHEMAS
from tests.aclearn.wire.frames import SECRET, entries_of, frames_of, outcome, with_header

KINDS_WITH_ARRAYS = sorted(kind for kind, schema in SCHEMAS.items() if schema.arrays)


@pytest.mark.parametrize(
    ("dtype", "dims", "reason"),  # the sample has 24 bytes
    [
        ("float32", [[3, 2]], None),
        ("uint8", [[4, 6]], None),
        ("float32", [[2, 4], [2, 0], [2**20, 2**20]], "wrong_size"),
        # 2^63 * 2^63 is 0 and 2^63 * 2 + 6 is 6 in 64 bits
        ("float32", [[2**62, 2**62], [2**63, 2**63], [0, 2**62]], "bad_array"),
        ("float32", [[-2, -3], [2, 3.0], [True, 6], {}, None], "bad_array"),
        ("float32", [[6], [2, 3, 1, 1, 1, 1], [1] * 33], "bad_array"),
        *((dtype, [[1, 3]], "bad_array") for dtype in ("int64", "object", "O8")),
        *((dtype, [[2, 3]], "bad_array") for dtype in (">f4", [["a", "<f4"]], None)),
        ("V1", [[4, 6]], "bad_array"),
    ],
)
def test_what_the_header_says_of_an_array_must_be_true(samples, dtype, dims, reason):
    frames = frames_of(samples["ActRequest"])[:2]
    for each in dims:
        entry = ["observations", "joints", dtype, each]
        assert outcome(with_header(frames, arrays=[entry])) == reason, each


@pytest.mark.parametrize(
    "entry",
    [
        ["observations", "joints", "float32"],
        ["observations", "joints", "float32", [2, 3], None],
        ["observations", "joints", "key", "float32", [2, 3]],
        [SECRET, "float32", [2, 3]],
        [["observations"], "joints", "float32", [2, 3]],
        ["observations", "float32", [2, 3]],
        ["observations", 1, "float32", [2, 3]],
        [],
        None,
        1,
        {},
    ],
)
def test_an_entry_of_another_form_is_refused(samples, entry):
    frames = frames_of(samples["ActRequest"])[:2]
    assert outcome(with_header(frames, arrays=[entry])) == "bad_array"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["w", "float32", [1]], ["w", "float32", [1]]),
        (["w" * 1025, "float32", [1]], ["b", "float32", [1]]),
        (["w", "float32", [1], 1], ["b", "float32", [1]]),
        (["w", "float64", [1]], ["b", "float32", [1]]),
    ],
)
def test_tensors_need_keys_of_their_own(samples, first, second):
    header, arrays = frames_of(samples["Weights"])[:1], [["tensors", *first], ["tensors", *second]]
    assert outcome([*with_header(header, arrays=arrays), bytes(4), bytes(4)]) == "bad_array"


@pytest.mark.parametrize("kind", KINDS_WITH_ARRAYS)
def test_an_array_that_is_left_out_is_refused_where_the_kind_needs_it(kind, samples):
    frames = frames_of(samples[kind])
    for field in SCHEMAS[kind].arrays:
        kept = [i for i, entry in enumerate(entries_of(frames)) if entry[0] != field.name]
        header = with_header(frames[:1], arrays=[entries_of(frames)[i] for i in kept])
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
        (["state", "float32", [1]], ["masks", "bool", [4]]),
        (["masks", "bool", [1, 1, 4]], ["state", "float32", [1]]),
        (["behaviour_parameters", "float32", [1, 1]], ["state", "float32", [1]]),
        (["behaviour_parameters", "float32", [1, 1, 1]], ["behaviour_parameters", "float32", [1]]),
    ],
)
def test_what_an_unroll_may_carry_besides_is_read_strictly(samples, first, second):
    frames = frames_of(samples["Unroll"])
    entries, replaced = entries_of(frames), {first[0], second[0], "state", "masks"}
    kept = [i for i, entry in enumerate(entries) if entry[0] not in replaced]
    header = with_header(frames[:1], arrays=[*(entries[i] for i in kept), first, second])
    assert outcome([*header, *(frames[1 + i] for i in kept), bytes(4), bytes(4)]) == "bad_array"


def test_arrays_out_of_their_order_and_bools_that_are_neither_0_nor_1_are_refused(samples):
    frames = frames_of(samples["ActReply"])
    swapped = with_header([frames[0], *frames[:0:-1]], arrays=entries_of(frames)[::-1])
    assert outcome(swapped) == "bad_array"
    frames = frames_of(samples["Unroll"])
    names = [entry[0] for entry in entries_of(frames)]
    frames[1 + names.index("valid")] = b"\0\1\2\1\0\1"
    assert outcome(frames) == "bad_array"


def test_the_bytes_of_arrays_are_bounded_exactly() -> None:
    tensors = {"a": np.zeros(6, np.float32), "b": np.zeros(4, np.float32)}  # 40 bytes
    frames = encode(Weights(0, 1, tensors), run="r", incarnation="i", sequence=1)
    assert decode(frames, array_bytes=40).message.version == 1
    with pytest.raises(WireError, match="40 bytes of arrays") as refused:
        decode(frames, array_bytes=39)
    assert refused.value.reason == "too_large"
