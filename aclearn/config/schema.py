"""The JSON schema of a configuration, by which editors complete and check a file."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Final, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from aclearn.config import _explain
from aclearn.config._named import Named, NamedArguments
from aclearn.config.compressor import CompressorConfig
from aclearn.config.correctors import CorrectorConfig
from aclearn.config.loss import ALGORITHMS, LossConfig
from aclearn.config.model import Config
from aclearn.config.policies import PolicyOverrides

Schema = dict[str, Any]

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
#: `10_000_000` is a number for our reader, and a text for editors.
_UNDERSCORED: Final = {"type": "string", "pattern": r"^[+-]?\d+(_\d+)+$"}
#: `module:Name` of a class of the user's.
_USERS: Final = {"type": "string", "pattern": ":"}
_ANY: Final[Schema] = {}
_HAS_KIND: Final[Schema] = {"type": "object", "required": ["kind"]}


def config_schema() -> Schema:
    """The JSON schema (draft 7) of a configuration file, with all links, strategies, correctors.

    It allows what the reader allows, and a little more: what depends on two keys, on the machine or
    on modules of the user's is checked by the reader alone.
    """
    schema = _group(Config)
    base = {"type": "string", "description": "file or shipped configuration that this one changes"}
    schema["properties"] = {"base": base, **schema["properties"]}
    del schema["required"]  # a base may have it
    del schema["properties"]["env"]["required"]
    return {"$schema": _DRAFT, "title": "Configuration of aclearn", **schema}


def schema_text() -> str:
    """The schema as the text of a file."""
    return json.dumps(config_schema(), indent=1, ensure_ascii=False) + "\n"


def schema_line(path: str | PurePath) -> str:
    """The first line of a configuration, by which editors find the schema at `path`."""
    return f"# yaml-language-server: $schema={path}"


def _group(model: type[BaseModel]) -> Schema:
    fields = _explain.fields_of(model)
    schema: Schema = {
        "type": ["object", "null"],  # a section may be empty
        "properties": {key: _value(field, (model, key)) for key, field in fields.items()},
        "additionalProperties": model.model_config.get("extra") == "allow",
    }
    if required := [key for key, field in fields.items() if field.is_required()]:
        schema["required"] = required
    return schema


def _value(field: FieldInfo, place: tuple[type[BaseModel], str]) -> Schema:
    """The schema of a key's value, with its description."""
    schema = _PLACES[place]() if place in _PLACES else _of_type(field)
    return {**_described(field), **schema}


def _described(field: FieldInfo) -> Schema:
    return {"description": field.description} if field.description else {}


def _of_type(field: FieldInfo) -> Schema:
    if (model := _explain.group_of(field)) is not None:
        return _group(model)
    if (model := _explain.named_group_of(field)) is not None:
        return {"type": ["object", "null"], "additionalProperties": _group(model)}
    for item in field.metadata:
        if isinstance(item, Named):
            return _one_of(item.names)
    kinds: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, NamedArguments):
            entry = _entry(kind)
            return entry if kind is field.annotation else _list(entry)
    written: Any = Annotated[field.annotation, "", *field.metadata]
    schema = TypeAdapter(written).json_schema()
    schema.pop("title", None)
    autos = [{"const": item.auto} for item in field.metadata if hasattr(item, "auto")]
    schema = _as_read(schema)
    return {"anyOf": [schema, *autos]} if autos else schema


def _as_read(schema: Schema) -> Schema:
    """A schema of pydantic's with what our reader of YAML also takes for numbers and texts."""
    read = {
        key: [_as_read(each) for each in value]
        if key == "anyOf"
        else _as_read(value)
        if key in ("items", "additionalProperties") and isinstance(value, dict)
        else value
        for key, value in schema.items()
    }
    if read.get("type") in ("integer", "number"):
        return {"anyOf": [read, _UNDERSCORED]}
    if read.get("type") == "string" and not {"enum", "const"} & read.keys():
        return {**read, "type": ["string", "number", "boolean"]}
    return read


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _one_of(names: Iterable[str]) -> Schema:
    return {"anyOf": [{"enum": list(names)}, _USERS]}


def _named(arguments: Mapping[str, Schema]) -> Schema:
    """A name alone, or a mapping of one name to its arguments."""
    mapping = {
        "type": "object",
        "properties": dict(arguments),
        "patternProperties": {":": _ANY},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {"anyOf": [*_one_of(arguments)["anyOf"], mapping]}


def _entry(kind: type[NamedArguments]) -> Schema:
    models = {} if kind.table is None else {n: kind.model_of(n) for n in kind.table.names}
    return _named({n: _ANY if model is None else _group(model) for n, model in models.items()})


def _link() -> Schema:
    links: dict[str, Schema] = {}
    for name, address in pkgutil.resolve_name("compress:LINKS").items():
        model: type[BaseModel] = pkgutil.resolve_name(address).model
        group = _group(model)
        first = next(iter(group["properties"].values()), None)  # the main setting
        links[name] = group if first is None else {"anyOf": [first, group]}
    shorts = ("int8", "fp16", "bf16")
    return _named({**links, **dict.fromkeys(shorts, links["quantize"])})


def _loss() -> Schema:
    """Keys that depend on `kind`; without one, which a base may have, those of any algorithm."""
    kind = {**_one_of(ALGORITHMS.names), **_described(LossConfig.model_fields["kind"])}
    any_kind: dict[str, list[Schema]] = {}
    cases = []
    for name in ALGORITHMS.names:
        group = _group(LossConfig.model_for({"kind": name}))
        group["properties"]["kind"] = kind
        for key, value in group["properties"].items():
            any_kind.setdefault(key, []).append(value)
        cases.append({"if": {"properties": {"kind": {"const": name}}, **_HAS_KIND}, "then": group})
    properties = {key: {"anyOf": _unlike(values)} for key, values in any_kind.items()}
    without = {"properties": properties, "additionalProperties": False}
    return {
        "type": ["object", "null"],
        "properties": {"kind": kind},
        "allOf": [*cases, {"if": {"not": _HAS_KIND}, "then": without}],
    }


def _unlike(schemas: Iterable[Schema]) -> list[Schema]:
    found: list[Schema] = []
    for schema in schemas:
        if schema not in found:
            found.append(schema)
    return found


def _correctors() -> Schema:
    return {"anyOf": [{"const": "auto"}, _list(_entry(CorrectorConfig))]}


#: Keys whose types do not say what may be written.
_PLACES: Final[Mapping[tuple[type[BaseModel], str], Callable[[], Schema]]] = {
    (Config, "loss"): _loss,
    (Config, "correctors"): _correctors,
    (PolicyOverrides, "correctors"): lambda: {"anyOf": [{"type": "null"}, _correctors()]},
    (CompressorConfig, "chain"): lambda: _list(_link()),
    (CompressorConfig, "ladder"): lambda: _list(_list(_link())),
}
