"""Validates data against a model; each mistake is one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from aclearn.config import _explain
from aclearn.config.shipped import shipped_with_loss
from aclearn.errors import ConfigError

_ModelT = TypeVar("_ModelT", bound=BaseModel)
#: A dotted key, and the rest of the sentence that begins with it.
Mistake = tuple[str, str]


def check(
    model: type[_ModelT], data: Any, prefix: str = ""
) -> tuple[_ModelT | None, list[Mistake]]:
    """The instance and no mistakes, or None and all of them.

    Args:
        prefix: dotted key of `data`; "" for a whole configuration.
    """
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, mistakes_of(error, model, data, prefix)


def mistakes_of(
    error: ValidationError, model: type[BaseModel], data: Any, prefix: str = ""
) -> list[Mistake]:
    """The mistakes that pydantic found; the other arguments are as of `check`."""
    # a default that depends on another key, which is a mistake itself
    errors = [e for e in error.errors() if e["type"] != "default_factory_not_called"]
    found = (each for details in errors for each in _mistakes(model, data, details, prefix))
    mistakes = list(dict.fromkeys(found))
    dot = f"{prefix}." if prefix else ""
    return [(f"{dot}{key}" if key else prefix, sentence) for key, sentence in mistakes]


def validated(model: type[_ModelT], data: Any, key: str) -> _ModelT:
    """`data` of the section `key` as `model`.

    Raises:
        ConfigError: one line for each mistake.
    """
    made, mistakes = check(model, data, key)
    if made is None:
        raise refusal(mistakes)
    return made


def refusal(mistakes: Sequence[Mistake]) -> ConfigError:
    """The error with one line for each mistake."""
    return ConfigError("\n".join(key + sentence for key, sentence in mistakes))


def _mistakes(
    model: type[BaseModel], data: Any, error: ErrorDetails, prefix: str
) -> Iterator[Mistake]:
    location = error["loc"]
    if not location and error["type"] != "value_error":
        yield "", f": expected a mapping, got {_explain.got(error['input'])}"
        return
    if not location:  # contradictions between groups are whole sentences that start with their key
        for sentence in str(error["ctx"]["error"]).split("\n"):
            key, _, rest = sentence.partition(":")
            yield key, f":{rest}"
        return
    if error["type"] in ("extra_forbidden", "invalid_key"):
        yield _unknown(model, data, [str(name) for name in location], prefix)
        return
    key, field = _explain.find(model, location, data)
    if error["type"] == "missing":
        yield _missing(key, field)
        return
    if error["type"] == "value_error":  # from one of our validators: a whole sentence
        yield key, f": {error['ctx']['error']}"
        return
    wanted = "a section with keys" if _explain.group_of(field) else _explain.expected(field)
    about = f"; meaning: {field.description}" if field.description else ""
    yield key, f": expected {wanted}, got {_explain.got(error['input'])}{about}"


def _unknown(whole: type[BaseModel], data: Any, location: list[str], prefix: str) -> Mistake:
    dotted, owner = ".".join(location), whole
    named = None
    for name in location[:-1]:
        data = data[name]
        if named is not None:
            owner, named = named, None
            continue
        field = _explain.fields_of(owner)[name]
        named = _explain.named_group_of(field)
        owner = _explain.group_of(field, data) or owner
    siblings = list(_explain.fields_of(owner))
    meant = _explain.nearest(whole, dotted, siblings)
    dot = f"{prefix}." if prefix else ""
    hint = f"; did you mean {dot}{meant}?" if meant and meant != dotted else "."
    if location[:-1] == ["loss"] and (kinds := _losses_with(location[-1])):
        asked = owner.model_fields["kind"].default
        others = shipped_with_loss(asked)
        return dotted, (
            f" is a key of loss.kind {', '.join(kinds)}, and this loss is {asked}; set another "
            f"loss.kind, or leave {dotted} out"
            + (f", as the configuration {others[0]} does" if others else "")
        )
    written, colon, value = location[-1].partition(":")
    if colon and written in siblings:  # {key:1} is YAML for a key "key:1" without a value
        hint = f"; write a space after the colon: `{written}: {value}`."
    section = f"{dot}{'.'.join(location[:-1])}".removesuffix(".")
    place = f"of {section}" if section else "at the top"
    return dotted, f" is not a known key{hint} The keys {place} are {', '.join(siblings)}"


def _losses_with(key: str) -> list[str]:
    from aclearn.config.loss import ALGORITHMS  # which is made of checked groups itself

    models = {name: ALGORITHMS.model(name) for name in ALGORITHMS.names}
    return [name for name, model in models.items() if model and key in _explain.fields_of(model)]


def _missing(key: str, field: FieldInfo) -> Mistake:
    group = _explain.group_of(field)
    if group is not None:  # the only group with a required key
        key, field = next(iter(_explain.walk(group, f"{key}.")))
    return key, f" is missing: {field.description}"
