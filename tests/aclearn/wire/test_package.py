"""The package's names exist, and every message has a schema."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

import aclearn.wire as wire
from aclearn.wire.schema import SCHEMAS, compile_schema


def test_every_public_name_exists_and_every_message_is_public():
    assert len(set(wire.__all__)) == len(wire.__all__)
    assert all(hasattr(wire, name) for name in wire.__all__)
    messages = {message.__name__ for message in get_args(wire.Message)}
    assert messages - {"Unroll"} <= set(wire.__all__)  # that one is of `aclearn.types`


def test_every_message_of_the_protocol_has_a_schema_and_a_sample(samples):
    assert set(SCHEMAS) == {message.__name__ for message in get_args(wire.Message)} == set(samples)


def test_an_annotation_that_the_wire_cannot_carry_is_refused_at_import():
    @dataclasses.dataclass
    class Odd:
        anything: object

    with pytest.raises(TypeError, match="the wire has no schema for"):
        compile_schema(Odd)
