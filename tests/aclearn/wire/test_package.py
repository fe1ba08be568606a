"""Every message has a schema."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from aclearn.wire import Message
from aclearn.wire.schema import SCHEMAS, compile_schema


def test_every_message_of_the_protocol_has_a_schema_and_a_sample(samples):
    assert set(SCHEMAS) == {message.__name__ for message in get_args(Message)} == set(samples)


def test_an_annotation_that_the_wire_cannot_carry_is_refused_at_import():
    @dataclasses.dataclass
    class Odd:
        anything: object

    with pytest.raises(TypeError, match="the wire has no schema for"):
        compile_schema(Odd)
