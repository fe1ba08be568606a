"""Schemas of messages, compiled from their annotations once, at import.

A schema turns a message into plain msgpack values and back. In both directions it raises
`ValueError` for values that the annotations do not allow.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from aclearn.types.array_rules import (
    ArrayRule,
    BoolRule,
    FloatRule,
    IntRule,
    Scalar,
    Text,
    TextRule,
)
from aclearn.wire.messages import Message

#: A value of the wire from one of the sender, which may be NumPy's, and back; or `ValueError`.
Rule = Callable[[Any], Any]


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


# Methods: a call of one costs less than that of an object.
SHORT_TEXT: Rule = TextRule(1024, printable=True).__call__
#: The same for names, which come again in every message; most of them are known.
_NAME: Rule = functools.lru_cache(4096, typed=True)(SHORT_TEXT)
COUNT: Rule = IntRule(0).__call__
_PLAIN: dict[Any, Rule] = {
    int: IntRule().__call__,
    float: FloatRule().__call__,
    bool: BoolRule().__call__,
    str: SHORT_TEXT,
}
_SCALARS: dict[Any, Rule] = {**_PLAIN, str: get_args(Text)[1].__call__}


def _scalar(value: Any) -> Any:
    if (rule := _SCALARS.get(type(value))) is None:
        raise ValueError(f"expected an int, a float, a bool or a str, got {type(value).__name__}")
    return rule(value)


def _list_rule(item: Rule) -> Rule:
    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise ValueError(f"expected a list, got {type(value).__name__}")
        return [item(entry) for entry in value]

    return convert


def _mapping_rule(item: Rule) -> Rule:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):  # the sender may use a Counter
            raise ValueError(f"expected a dict, got {type(value).__name__}")
        return {_NAME(key): item(entry) for key, entry in value.items()}

    return convert


@functools.cache
def record_rule(record: type[Any]) -> Rule:
    """Writes a dataclass as a map with exactly its fields, and reads that map."""
    hints = get_type_hints(record, include_extras=True)
    rules = {field.name: _rule(hints[field.name]) for field in dataclasses.fields(record)}

    def convert(value: Any) -> Any:
        if type(value) is record:
            return {name: rule(getattr(value, name)) for name, rule in rules.items()}
        if type(value) is not dict or value.keys() != rules.keys():
            raise ValueError(f"expected a map with exactly {sorted(rules)}")
        return record(**{name: rule(value[name]) for name, rule in rules.items()})

    return convert


def _rule(hint: Any) -> Rule:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return args[1].__call__  # type: ignore[no-any-return]
    if origin is list:
        return _list_rule(_rule(args[0]))
    if origin is dict and args[0] is str:
        return _mapping_rule(_rule(args[1]))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return record_rule(hint)
    if hint == Scalar:
        return _scalar
    if hint not in _PLAIN:
        raise TypeError(f"the wire has no schema for {hint!r}")
    return _PLAIN[hint]


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
