"""From a file and overrides to a `Config`, or one `ConfigError` that lists all there is to mend."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from aclearn.config import _explain
from aclearn.config._yaml import YamlError, parse_yaml
from aclearn.config.model import Config
from aclearn.errors import ConfigError


@dataclass(frozen=True)
class _Override:
    text: str
    key: str
    value: Any

    @property
    def source(self) -> str:
        return f'override "{self.text}"'


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """The configuration in a YAML file, with `overrides` like "trainer.amp=off" put on top.

    The value of an override is read as YAML; a later one wins over an earlier one. A run without a
    name is called `<name of the file>-<seed>`.

    Raises:
        ConfigError: a file that cannot be read, a key or a value that cannot be used. The message
            names the file or the override, the dotted key, what was expected and what was found,
            one line for each mistake.
    """
    path = Path(path)
    data = _mapping(_read(path), str(path))
    parsed = [_parse_override(text) for text in overrides]
    for override in parsed:
        _put(data, override)
    config = _validate(data, str(path), parsed)
    if config.run.name is not None:
        return config
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).lstrip("._-")[:80] or "run"
    run = config.run.model_copy(update={"name": f"{stem}-{config.run.seed}"})
    return config.model_copy(update={"run": run})


def config_from_yaml(text: str, *, source: str = "configuration") -> Config:
    """The configuration in a YAML text, such as `Config.to_yaml` writes; `source` is for messages.

    Raises:
        ConfigError: as `load_config`.
    """
    return _validate(_mapping(text, source), source, ())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise ConfigError(f"{path}: there is no such configuration file") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 text at byte {exc.start}") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror}") from exc


def _mapping(text: str, source: str) -> dict[str, Any]:
    try:
        data = parse_yaml(text)
    except YamlError as exc:
        raise ConfigError(f"{source}: {exc}") from exc
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"{source}: expected sections like `env:` at the top, got {_explain.got(data)}"
        )
    return data


def _parse_override(text: str) -> _Override:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ConfigError(f'override "{text}": expected section.key=value, for instance run.seed=3')
    try:
        return _Override(text, key, parse_yaml(value))
    except YamlError as exc:
        raise ConfigError(f'override "{text}": the value is wrong: {exc}') from exc


def _put(data: dict[str, Any], override: _Override) -> None:
    """Sets the value in place, making the sections on the way."""
    *sections, leaf = override.key.split(".")
    place = data
    for depth, section in enumerate(sections, start=1):
        if place.get(section) is None:
            place[section] = {}
        place = place[section]
        if not isinstance(place, dict):
            raise ConfigError(
                f"{override.source}: {'.'.join(sections[:depth])} is {_explain.got(place)}, "
                f"not a section, so it has no key {leaf}"
            )
    place[leaf] = override.value


def _validate(data: dict[str, Any], source: str, overrides: Sequence[_Override]) -> Config:
    mistakes = list(_take_unknown_keys(data, Config, ""))
    config = None
    try:
        config = Config.model_validate(data)
    except ValidationError as exc:
        mistakes += [mistake for error in exc.errors() for mistake in _mistakes(error)]
    if config is None or mistakes:
        raise ConfigError(_lines(mistakes, source, overrides))
    return config


def _lines(mistakes: Sequence[tuple[str, str]], source: str, overrides: Sequence[_Override]) -> str:
    """One line a mistake: where the key was set, the key, the sentence."""
    return "\n".join(
        f"{_origin(key, source, overrides)}: {key}{sentence}" for key, sentence in mistakes
    )


def _origin(key: str, source: str, overrides: Sequence[_Override]) -> str:
    plain = key.partition("[")[0]
    for override in reversed(overrides):
        if plain == override.key or plain.startswith(f"{override.key}."):
            return override.source
    return source


def _take_unknown_keys(
    data: dict[Any, Any], model: type[BaseModel], prefix: str
) -> Iterator[tuple[str, str]]:
    """Removes each unknown key from `data` and tells it as (dotted key, rest of the sentence)."""
    fields = _explain.fields_of(model)
    for key, value in list(data.items()):
        dotted = f"{prefix}{key}"
        if key not in fields:
            del data[key]
            meant = _explain.nearest(Config, dotted)
            hint = f"; did you mean {meant}?" if meant else "."
            place = f"of {prefix[:-1]}" if prefix else "at the top"
            yield dotted, f" is not a known key{hint} The keys {place} are {', '.join(fields)}"
            continue
        group = _explain.group_of(fields[key])
        if group is not None and isinstance(value, dict):
            yield from _take_unknown_keys(value, group, f"{dotted}.")


def _mistakes(error: ErrorDetails) -> Iterator[tuple[str, str]]:
    """(dotted key, rest of the sentence) for one error of pydantic."""
    location = error["loc"]
    if not location:  # contradictions between groups, already sentences that start with their key
        for sentence in str(error["ctx"]["error"]).split("\n"):
            key, _, rest = sentence.partition(":")
            yield key, f":{rest}"
        return
    key, field = _explain.find(Config, location)
    if error["type"] == "missing":
        yield _missing(key, field)
        return
    if error["type"] == "value_error":  # of a validator of ours, whose words say it all
        yield key, f": {error['ctx']['error']}"
        return
    wanted = "a section with keys" if _explain.group_of(field) else _explain.expected(field)
    about = f"; meaning: {field.description}" if field.description else ""
    yield key, f": expected {wanted}, got {_explain.got(error['input'])}{about}"


def _missing(key: str, field: FieldInfo) -> tuple[str, str]:
    group = _explain.group_of(field)
    if group is not None:  # the only group with a required key
        key, field = next(iter(_explain.walk(group, f"{key}.")))
    return key, f" is missing: {field.description}"
