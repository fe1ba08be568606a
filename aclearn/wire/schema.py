"""Schemas of messages, compiled from their annotations once, at import.

A schema turns a message into plain msgpack values and back. In both directions it raises
`ValueError` for values that the annotations do not allow. The errors name types and limits but
never repeat a value, which may be huge, deeply nested or private.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from aclearn.types.array_rules import (
    ArrayRule,
    FloatRule,
    IntRule,
    NameRule,
    Scalar,
    Text,
    TextRule,
)
from aclearn.wire.messages import Message

MAX_STR_BYTES = 1024
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

Convert = Callable[[Any], Any]


class Rule(NamedTuple):
    """Reads a value from the wire (strictly) and writes it (also NumPy scalars)."""

    load: Convert
    dump: Convert


class ArrayField(NamedTuple):
    """One field in array frames.

    `form` is "one", "optional" (one or none), "mapping" (by key) or "tuple".
    """

    name: str
    dtypes: frozenset[str]
    min_ndim: int
    max_ndim: int
    form: str


class Schema(NamedTuple):
    """One kind of message, for the codec; its fields in the header, then those in array frames."""

    kind: str
    type: type[Message]
    fields: dict[str, Rule]
    arrays: tuple[ArrayField, ...]


def _type_name(value: object) -> str:
    return type(value).__name__


def _int_rule(low: int = _INT64_MIN, high: int = _INT64_MAX) -> Rule:
    most = "2^63-1" if high == _INT64_MAX else high

    def load(value: Any) -> int:
        if type(value) is not int:
            raise ValueError(f"expected an int, got {_type_name(value)}")
        if not low <= value <= high:
            raise ValueError(f"expected an int from {low} to {most}, got one outside")
        return value

    def dump(value: Any) -> int:
        return load(int(value) if isinstance(value, np.integer) else value)

    return Rule(load, dump)


def _float_rule(low: float = -math.inf, high: float = math.inf) -> Rule:
    def load(value: Any) -> float:
        if type(value) is not float:
            raise ValueError(f"expected a float, got {_type_name(value)}")
        if not math.isfinite(value):
            raise ValueError("expected a finite float, got NaN or infinity")
        if not low <= value <= high:
            raise ValueError(f"expected a float from {low:g} to {high:g}, got one outside")
        return value

    def dump(value: Any) -> float:
        if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
            return load(float(value))
        return load(value)

    return Rule(load, dump)


def _bool_rule() -> Rule:
    def load(value: Any) -> bool:
        if type(value) is not bool:
            raise ValueError(f"expected a bool, got {_type_name(value)}")
        return value

    def dump(value: Any) -> bool:
        return load(bool(value) if isinstance(value, np.bool_) else value)

    return Rule(load, dump)


def _text_rule(max_bytes: int, *, printable: bool) -> Rule:
    def load(value: Any) -> str:
        if type(value) is not str:
            raise ValueError(f"expected a str, got {_type_name(value)}")
        # The first comparison bounds the cost of the second one.
        if len(value) > max_bytes or len(value.encode()) > max_bytes:
            raise ValueError(f"expected at most {max_bytes} bytes of text, got more")
        if printable and not value.isprintable():
            raise ValueError("expected one line of printable text, got control characters")
        return value

    return Rule(load, load)


def _name_rule(most: int) -> Rule:
    pattern = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{most - 1}}}")

    def load(value: Any) -> str:
        if type(value) is not str or not pattern.fullmatch(value):
            raise ValueError(
                f"expected a name of at most {most} letters, digits and _.-, from a letter or digit"
            )
        return value

    return Rule(load, load)


SHORT_TEXT = _text_rule(MAX_STR_BYTES, printable=True)
COUNT = _int_rule(0)


_SCALARS = {
    int: _int_rule(),
    float: _float_rule(),
    bool: _bool_rule(),
    str: _text_rule(get_args(Text)[1].max_bytes, printable=False),
}


def _scalar(value: Any) -> Any:
    if (rule := _SCALARS.get(type(value))) is None:
        raise ValueError(f"expected an int, a float, a bool or a str, got {_type_name(value)}")
    return rule.load(value)


def _list_rule(item: Rule) -> Rule:
    def convert(value: Any, convert_item: Convert) -> list[Any]:
        if type(value) is not list:
            raise ValueError(f"expected a list, got {_type_name(value)}")
        return [convert_item(entry) for entry in value]

    return Rule(lambda value: convert(value, item.load), lambda value: convert(value, item.dump))


def _mapping_rule(item: Rule) -> Rule:
    def convert(value: Any, convert_item: Convert) -> dict[str, Any]:
        if not isinstance(value, dict):  # the sender may use a Counter
            raise ValueError(f"expected a dict, got {_type_name(value)}")
        return {SHORT_TEXT.load(key): convert_item(entry) for key, entry in value.items()}

    return Rule(lambda value: convert(value, item.load), lambda value: convert(value, item.dump))


@functools.cache
def record_rule(record: type[Any]) -> Rule:
    """Reads and writes a dataclass as a map with exactly its fields."""
    hints = get_type_hints(record, include_extras=True)
    rules = {field.name: _rule(hints[field.name]) for field in dataclasses.fields(record)}

    def load(value: Any) -> Any:
        if type(value) is not dict or value.keys() != rules.keys():
            raise ValueError(f"expected a map with exactly {sorted(rules)}")
        return record(**{name: rule.load(value[name]) for name, rule in rules.items()})

    def dump(value: Any) -> dict[str, Any]:
        if type(value) is not record:
            raise ValueError(f"expected a {record.__name__}, got {_type_name(value)}")
        return {name: rule.dump(getattr(value, name)) for name, rule in rules.items()}

    return Rule(load, dump)


def _rule(hint: Any) -> Rule:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        mark = args[1]
        if isinstance(mark, IntRule):
            return _int_rule(mark.low, mark.high)
        if isinstance(mark, FloatRule):
            return _float_rule(mark.low, mark.high)
        if isinstance(mark, NameRule):
            return _name_rule(mark.most)
        if isinstance(mark, TextRule):
            return _text_rule(mark.max_bytes, printable=False)
    if origin is list:
        return _list_rule(_rule(args[0]))
    if origin is dict and args[0] is str:
        return _mapping_rule(_rule(args[1]))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return record_rule(hint)
    if hint == Scalar:
        return Rule(_scalar, _scalar)
    plain = {int: _int_rule, float: _float_rule, bool: _bool_rule}
    if hint in plain:
        return plain[hint]()
    if hint is str:
        return SHORT_TEXT
    raise TypeError(f"the wire has no schema for {hint!r}")


def _array_field(name: str, hint: Any) -> ArrayField | None:
    origin, args = get_origin(hint), get_args(hint)
    form, inner = "one", hint
    if origin in (Union, types.UnionType) and type(None) in args:
        form, inner = "optional", next(arg for arg in args if arg is not type(None))
    elif origin is dict:
        form, inner = "mapping", args[1]
    elif origin is tuple:
        form, inner = "tuple", args[0]
    if get_origin(inner) is not Annotated or not isinstance(get_args(inner)[1], ArrayRule):
        return None
    rule: ArrayRule = get_args(inner)[1]
    return ArrayField(name, frozenset(rule.dtypes), rule.min_ndim, rule.max_ndim, form)


def compile_schema(message_type: type[Message]) -> Schema:
    """The schema of a message type, read from its annotations.

    Raises:
        TypeError: an annotation that the wire cannot carry.
    """
    hints = get_type_hints(message_type, include_extras=True)
    names = [field.name for field in dataclasses.fields(message_type)]
    arrays = {name: field for name in names if (field := _array_field(name, hints[name]))}
    fields = {name: _rule(hints[name]) for name in names if name not in arrays}
    return Schema(message_type.__name__, message_type, fields, tuple(arrays.values()))


SCHEMAS: dict[str, Schema] = {
    message_type.__name__: compile_schema(message_type) for message_type in get_args(Message)
}
"""The schema of every kind of message, by kind."""
