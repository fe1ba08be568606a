"""From a file and overrides to a `Config`, or one `ConfigError` that lists every mistake."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from aclearn.config import _explain
from aclearn.config._check import check
from aclearn.config._yaml import DEEPEST, Document, Keys, YamlError, parse_yaml
from aclearn.config.model import Config, plain_name
from aclearn.config.policies import schema_key
from aclearn.config.shipped import environment_hint, find_config, shipped_configs, shipped_name
from aclearn.errors import ConfigError

_LOGGER = logging.getLogger(__name__)
#: Folders beside the config.yaml of a run.
_OF_A_RUN = ("checkpoints", "logs")


@functools.cache
def _keys() -> Keys:
    """The configuration's sections and text keys, for the reader of YAML."""
    texts = (key for key, field in _explain.walk(Config) if field.annotation in (str, str | None))
    return Keys(sections=_Known(_explain.sections(Config)), texts=_Known(texts))


class _Known(frozenset[str]):
    """Keys of the models, which those of a policy's own sections are too."""

    def __contains__(self, dotted: object) -> bool:
        return super().__contains__(schema_key(str(dotted)))


@dataclass(frozen=True)
class _Override:
    source: str
    key: str
    value: Any


@dataclass(frozen=True)
class _Origins:
    """Where each key was set: in which line of which file, or by which override.

    Attributes:
        source: the file or text; the place of a missing key.
        places: of the keys of `source` and the files that it is based on.
    """

    source: str
    places: Mapping[str, str]
    overrides: Sequence[_Override] = ()

    def of(self, key: str) -> str:
        """The place to change."""
        plain = key.partition("[")[0]
        for override in reversed(self.overrides):
            if f"{plain}.".startswith(f"{override.key}."):
                return override.source
        if plain in self.places:
            return self.places[plain]
        for override in reversed(self.overrides):  # that made the section
            if override.key.startswith(f"{plain}."):
                return override.source
        return self.source


def load_config(path: str | Path, overrides: Mapping[str, Any] | Sequence[str] = ()) -> Config:
    """The configuration in a YAML file, with `overrides` applied.

    These are a mapping like `{"trainer.amp": "off"}`, or texts like "trainer.amp=off".

    `path` is as in `find_config`, or a folder with a `config.yaml`. A file with `base: other` is
    applied on top of that one, which is named in the same way, or by a path from the file's folder.
    Sections are merged key by key; all other values, including lists, are replaced.

    The value in a text is read as YAML; a later override wins. `run.experiment` is the file's name
    if nothing sets it, for `config.yaml` that of its folder. Folders become absolute. In the
    `config.yaml` of a run, which may have been moved, `run.dir` and `run.name` are those of its
    folder.

    Raises:
        ConfigError: a file that cannot be read, or an invalid key or value. The message names the
            file or the override, the dotted key, the expected and the found value, one line for
            each mistake.
    """
    path = find_config(path)
    if (path / "config.yaml").is_file():  # a run folder, or a project
        path /= "config.yaml"
    data, places, files = _read_with_bases(path)
    parsed, place = _parse_overrides(overrides), _place_of_run(path.absolute())
    for override in [*place, *parsed]:
        _put(data, override)
    config = _validate(data, _Origins(str(path), places, parsed))
    written = data["env"]["id"]
    if config.env.id != written:
        _LOGGER.warning("env.id: %s is taken as %s, prepared by env.atari", written, config.env.id)
    if place:  # a run has the folders of its start
        return _settled(config)
    folders = (file.parent for file in files if shipped_name(file) is None)
    return _settled(config, _experiment_of(path), [*folders, Path.cwd()])


def _experiment_of(path: Path) -> str:
    shipped = shipped_name(path)
    if shipped is None and path.name == "config.yaml":
        return path.resolve().parent.name
    return shipped or path.stem


def config_of_keys(
    keys: Mapping[str, Any], overrides: Mapping[str, Any] | Sequence[str] = ()
) -> Config:
    """The configuration of dotted keys, with `overrides`; it and errors are as of `load_config`."""
    data: dict[str, Any] = {}
    parsed = _parse_overrides(overrides)
    for override in [*_parse_overrides(keys), *parsed]:
        _put(data, override)
    return _settled(_validate(data, _Origins("configuration", {}, parsed)), None, [Path.cwd()])


def override_keys(overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """Dotted key → value of `overrides`, as of `load_config`.

    Raises:
        ConfigError: one is malformed.
    """
    return {override.key: override.value for override in _parse_overrides(overrides)}


def _settled(config: Config, experiment: str | None = None, folders: Iterable[Path] = ()) -> Config:
    """A copy with absolute folders and an experiment, which searches modules in `folders` too."""
    searched = [*map(Path, config.run.pythonpath), *folders]
    # each once, in this order
    pythonpath = tuple(dict.fromkeys(str(folder.absolute()) for folder in searched))
    keys_dir = config.network.keys_dir
    if keys_dir is not None:
        network = config.network.model_copy(update={"keys_dir": str(Path(keys_dir).absolute())})
        config = config.model_copy(update={"network": network})
    config = config.with_run(dir=str(Path(config.run.dir).absolute()), pythonpath=pythonpath)
    if config.run.init_from is not None:
        config = config.with_run(init_from=str(Path(config.run.init_from).absolute()))
    policies = {
        name: own.model_copy(update={"init_from": str(Path(own.init_from).absolute())})
        for name, own in config.policies.items()
        if own.init_from is not None
    }
    if policies:
        config = config.model_copy(update={"policies": config.policies | policies})
    if config.run.experiment is None and experiment is not None:
        config = config.with_run(experiment=plain_name(experiment))
    return config


def with_overrides(config: Config, overrides: Mapping[str, Any] | Sequence[str]) -> Config:
    """A configuration with `overrides`, which, like errors, are as of `load_config`."""
    parsed = _parse_overrides(overrides)
    # what is not set follows the overrides: another loss has other usual epochs and correctors
    data = config.model_dump(by_alias=True, exclude_unset=True)
    for override in parsed:
        _put(data, override)
    config = _validate(data, _Origins("configuration", {}, parsed)) if parsed else config
    return _settled(config, None, [Path.cwd()])


def _place_of_run(path: Path) -> list[_Override]:
    """Overrides with a run's present folder, if `path` is its configuration."""
    folder = path.parent
    if path.name != "config.yaml" or not all((folder / name).is_dir() for name in _OF_A_RUN):
        return []
    place = {"run.dir": str(folder.parent), "run.name": folder.name}
    return [_Override(str(path), key, value) for key, value in place.items()]


def config_from_yaml(text: str, *, source: str = "configuration") -> Config:
    """The configuration in a YAML text, such as `Config.to_yaml` writes; errors name `source`."""
    document = _mapping(text, source)
    return _validate(document.value, _Origins(source, _places(document, source)))


def _read_with_bases(
    path: Path, above: tuple[Path, ...] = ()
) -> tuple[Any, dict[str, str], list[Path]]:
    """The values of a file applied to those of its base, the place of each key, and the files."""
    document = _mapping(_read(path), str(path))
    value, places = document.value, _places(document, str(path))
    base = value.pop("base", None)
    if base is None:
        return value, places, [path]
    if not isinstance(base, str):
        raise ConfigError(f"{path}: base: expected a configuration, got {_explain.got(base)}")
    seen = (*above, path.resolve())
    try:
        below = find_config(base)
        if below == Path(base):
            below = path.parent / base
        if below.resolve() in seen:
            raise ConfigError(f"{base} is based on this file itself")
        data, places_below, files = _read_with_bases(below, seen)
    except ConfigError as exc:
        raise ConfigError(f"{path}: base: {exc}") from exc
    return _on_top(data, value), places_below | places, [path, *files]


def _on_top(below: dict[str, Any], above: dict[str, Any], key: str = "") -> dict[str, Any]:
    """Both sections, merged."""
    merged = below | above
    for name in below.keys() & above.keys():
        dotted = f"{key}.{name}" if key else name
        both = (below[name], above[name])
        if dotted in _keys().sections and all(isinstance(each, dict) for each in both):
            merged[name] = _on_top(*both, dotted)
    return merged


def _places(document: Document, source: str) -> dict[str, str]:
    return {key: f"{source}: line {line}" for key, line in document.lines.items()}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        meant = {f"{path.parent.name}/{path.stem}", path.stem} & shipped_configs().keys()
        shipped = (
            f"; {max(meant, key=len)}, without suffix, is the one that comes with aclearn"
            if meant
            else ""
        )
        raise ConfigError(
            f"{path}: there is no such configuration file{shipped}{environment_hint(str(path))}"
        ) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 text at byte {exc.start}") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror}") from exc


def _mapping(text: str, source: str) -> Document:
    try:
        document = parse_yaml(text, keys=_keys())
    except YamlError as exc:
        raise ConfigError(f"{source}: {exc}") from exc
    if document.value is None:
        return Document({}, {})
    if not isinstance(document.value, dict):
        got = _explain.got(document.value)
        raise ConfigError(f"{source}: expected sections like `env:` at the top, got {got}")
    return document


def _parse_overrides(overrides: Mapping[str, Any] | Sequence[str]) -> list[_Override]:
    if isinstance(overrides, Mapping):
        items = [(f"override {key!r:.200}", str(key), value) for key, value in overrides.items()]
        return [
            _Override(source, _override_key(key, source), _plain(v)) for source, key, v in items
        ]
    if isinstance(overrides, str) or not isinstance(overrides, Sequence):
        raise ConfigError(
            f"overrides: expected a mapping or a list of texts, got {overrides!r:.200}"
        )
    return [_parse_override(*pair) for pair in zip_longest(overrides, overrides[1:], fillvalue="")]


def _plain(value: Any) -> Any:
    """A path as text, numbers and arrays of numpy as Python's."""
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "dtype") and hasattr(value, "tolist") else value


def _parse_override(text: str, following: str) -> _Override:
    """The override; `following` is the next one, which may be the value of a misspelt option."""
    source = f'override "{text if len(text) <= 200 else text[:200] + "…"}"'
    key, equals, value = text.partition("=")
    if not equals and "=" not in following and not following.startswith("-"):
        value = following
    key = _override_key(key.strip() if equals else "", source, value)
    try:
        return _Override(source, key, parse_yaml(value, keys=_keys(), at=key).value)
    except YamlError as exc:
        raise ConfigError(f"{source}: the value is wrong: {exc}") from exc


def _override_key(key: str, source: str, value: str = "") -> str:
    """The dotted key, if it can be overridden; `value` is for the message."""
    option = re.search(r'"--?([a-z_.-]+)', source)
    meant = option and _explain.nearest(Config, option[1].replace("-", "_"), [])
    example = f"{meant}={value[:100] or '…'}" if meant else "run.seed=3"
    if not all(key.split(".")) or key.startswith("-"):
        raise ConfigError(f"{source}: expected section.key=value, for instance {example}")
    if key.count(".") >= DEEPEST:
        raise ConfigError(f"{source}: nested more than {DEEPEST} deep")
    if key in _keys().sections and key.partition(".")[0] != "policies":  # these have any names
        first = next(each for each, _ in _explain.walk(Config) if each.startswith(f"{key}."))
        raise ConfigError(
            f"{source}: {key} is a section, whose keys are set one by one, for instance {first}=…"
        )
    return key


def _put(data: dict[str, Any], override: _Override) -> None:
    """Set the value in place, creating the sections above it."""
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


def _validate(data: dict[str, Any], origins: _Origins) -> Config:
    config, mistakes = check(Config, data)
    if config is None:
        # one line per mistake: where the key was set, the key, the sentence
        raise ConfigError("\n".join(f"{origins.of(k)}: {k}{sentence}" for k, sentence in mistakes))
    return config
