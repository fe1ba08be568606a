"""Texts for users about the models: keys, expected values, wrong values."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_BOUND_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
_PLAIN = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    dict: "mapping whose keys are text",
    list: "list",
    type(None): "null",
}
_GOT_LIMIT = 80
#: Stands in dotted keys for the names of a mapping whose values are sections.
MAPPED = "NAME"


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by their YAML key."""
    fields = model.model_fields.items()
    return {str(field.validation_alias or name): field for name, field in fields}


def group_of(field: FieldInfo, value: Any = None) -> type[BaseModel] | None:
    """The model of a field that is a section, or None for a single value."""
    kind = field.annotation
    if not isinstance(kind, type) or not issubclass(kind, BaseModel) or hasattr(kind, "words"):
        return None  # what has words is written as a name with arguments
    model: type[BaseModel] = getattr(kind, "model_for", lambda _: kind)(value)
    return model


def named_group_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of the values of a mapping whose values are sections, or None."""
    if get_origin(field.annotation) is not dict:
        return None
    kind = get_args(field.annotation)[1]
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def walk(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every single value below a model with its dotted key, in the order of the models."""
    for key, field in fields_of(model).items():
        if (group := group_of(field)) is not None:
            yield from walk(group, f"{prefix}{key}.")
        elif (group := named_group_of(field)) is not None:
            yield from walk(group, f"{prefix}{key}.{MAPPED}.")
        else:
            yield f"{prefix}{key}", field


def sections(model: type[BaseModel]) -> frozenset[str]:
    """The sections below a model by their dotted key, "" for the model itself."""
    keys = [key.split(".") for key, _ in walk(model)]
    return frozenset(".".join(key[:depth]) for key in keys for depth in range(len(key)))


def find(model: type[BaseModel], location: Sequence[str | int], data: Any) -> tuple[str, FieldInfo]:
    """The dotted key at pydantic's `location` in `data`, like policy.hidden[1], and its field."""
    names = list(location)
    key = str(names.pop(0))
    field = fields_of(model)[key]
    if names and (named := named_group_of(field)) is not None:
        data, key = data[key][names[0]], f"{key}.{names.pop(0)}"
        field = FieldInfo.from_annotation(named)
        if names and names[0] in fields_of(named):
            key, field = f"{key}.{names[0]}", fields_of(named)[str(names.pop(0))]
    while names and (group := group_of(field, data := data[key.rpartition(".")[2]])) is not None:
        name = str(names.pop(0))
        key, field = f"{key}.{name}", fields_of(group)[name]
    # for a union pydantic adds the failed type
    names = [name for name in names if not str(name).startswith(("[key]", "constrained-"))]
    if names and get_origin(field.annotation) is dict:
        field = FieldInfo.from_annotation(get_args(field.annotation)[1])
    return key + "".join(f"[{name}]" for name in names), field


def expected(field: FieldInfo) -> str:
    """The values that a field accepts, as text: `whole number ≥ 1 or null`."""
    for item in field.metadata:
        if hasattr(item, "words"):  # `Named`
            return str(item.words())
    words = _type_words(field.annotation, _bounds(field.metadata))
    return words + "".join(f" or {item.auto}" for item in field.metadata if hasattr(item, "auto"))


def _bounds(metadata: Sequence[Any]) -> str:
    parts = []
    for item in metadata:
        for attribute, sign in _BOUND_SIGNS.items():
            if (bound := getattr(item, attribute, None)) is not None:
                parts.append(f"{sign} {bound:g}" if isinstance(bound, float) else f"{sign} {bound}")
        if getattr(item, "pattern", None):
            parts.append(f"that matches {item.pattern}")
    return " and ".join(parts)


def _type_words(kind: Any, bounds: str = "") -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        own = _bounds(arguments[1:])
        for item in arguments[1:]:
            if isinstance(item, FieldInfo):
                own = _bounds(item.metadata)
        return _type_words(arguments[0], own or bounds)
    if origin in (Union, types.UnionType):
        return " or ".join(
            _type_words(each, bounds if each is not type(None) else "") for each in arguments
        )
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"list of {_type_words(arguments[0])}".replace("whole number", "whole numbers")
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return str(getattr(kind, "words", lambda: "a section")())
    words = _PLAIN.get(origin or kind, getattr(kind, "__name__", str(kind)))
    return f"{words} {bounds}" if bounds else words


def got(value: Any) -> str:
    """A value and its type, short enough for one line: `'two' (text)`."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    shown = repr(value)
    if len(shown) > _GOT_LIMIT:
        shown = f"{shown[:_GOT_LIMIT]}…"
    return f"{shown} ({_PLAIN.get(type(value), type(value).__name__)})"


def nearest(model: type[BaseModel], dotted: str, siblings: Sequence[str]) -> str | None:
    """The known dotted key nearest to an unknown one, or None."""
    section, _, leaf = dotted.rpartition(".")
    prefix = f"{section}." if section else ""
    close = difflib.get_close_matches(leaf, siblings, n=1)
    if close:
        return f"{prefix}{close[0]}"
    # the beginning of a longer one: "unrols" for "unrolls_per_batch"
    beginnings = {name[: len(leaf)]: name for name in siblings}
    close = difflib.get_close_matches(leaf, list(beginnings), n=1, cutoff=0.8)
    if close:
        return f"{prefix}{beginnings[close[0]]}"
    known = {key.rpartition(".")[2]: key for key, _ in reversed(list(walk(model)))}
    close = difflib.get_close_matches(leaf, known, n=1, cutoff=0.8)
    return known[close[0]] if close else None
