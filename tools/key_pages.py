"""Writes docs/configuration.md and docs/links.md: every key and setting, from the models.

python -m tools.key_pages
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from aclearn.config import _explain
from aclearn.config._named import Named
from aclearn.config._yaml import dump_yaml, inline_yaml
from aclearn.config.loss import LossConfig
from aclearn.config.model import Config
from compress import LINKS, ConfiguredLink

_DOCS: Final = Path(__file__).parents[1] / "docs"

_HEAD = """# Configuration

`make docs` generates this page from the models in `aclearn/config/`.

A configuration is a YAML file; copy one of `configs/`. Missing keys keep their defaults. `3e-4`
and `10_000_000` are numbers; only `true` and `false` are booleans; a key whose type is text takes
the value as written, also `name: 42`. Unknown keys, duplicate keys and values of another type are
rejected with their name and line. On the command line, `section.key=value` replaces one key.

`base: other.yaml` at the top reads that file first, or a shipped configuration by its name, and
puts this one on top: sections are joined key by key, all other values are replaced.

An editor with a language server for YAML completes and checks keys, links, strategies and
correctors by a JSON schema: `aclearn configs --schema --to schema.json`. It finds it by the file's
first line, `# yaml-language-server: $schema=schema.json`. `aclearn new` writes both. What depends
on several keys is checked by aclearn alone.

```yaml
run: {target_return: 18, max_wall_s: 3600}
env: {id: ALE/Pong-v5, clip_rewards: true}
policy: {architecture: accerl-net1}
actors: {processes: 4}
```
"""
_LINKS_HEAD = """# Links

The links of a [compressor chain](compression.md) with their settings; the first one is the main
setting. `make docs` generates this page from the classes in `compress/methods/`.
"""
_TABLE = ("| key | type | default | meaning |", "|---|---|---|---|")


class ConfigKey(NamedTuple):
    """One key of the configuration; all fields are texts."""

    key: str
    type: str
    default: str
    description: str

    @property
    def section(self) -> str:
        """The section of the key; `correctors` is its own."""
        return self.key.rpartition(".")[0] or self.key


def describe_config() -> list[ConfigKey]:
    """Every key in the order of the sections; a key without a default has the text `required`."""
    return [_described(key, field) for key, field in _explain.walk(Config)]


def configuration_page() -> str:
    """The text of docs/configuration.md."""
    lines, fields = [_HEAD], dict(_explain.walk(Config))
    for section, entries in groupby(describe_config(), lambda entry: entry.section):
        parts: list[str] = []
        lines += [f"\n## {section}\n", *_TABLE]
        for entry in entries:
            lines.append(_row(entry))
            heading = entry.key.removesuffix(".kind").rpartition(".")[2]
            for name, model in _models(fields[entry.key]).items():
                parts += [f"\n### {heading}: {name}\n", *settings_table(model)]
                parts += _usual(model)
        lines += parts  # below the section's own table
    return "\n".join(lines) + "\n"


def _models(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """The models that names in this key's value choose, but the one whose keys the page has."""
    shown = LossConfig.model_for({})
    kinds = (field.annotation, *get_args(field.annotation))
    listed = [each for each in kinds if hasattr(each, "model_of")]
    of = {each.table: each.model_of for each in listed if each.table}
    of |= {each: each.model for each in field.metadata if isinstance(each, Named)}
    found = {name: model_of(name) for table, model_of in of.items() for name in table.names}
    return {
        n: model
        for n, model in found.items()
        if model and model is not shown and model.model_fields
    }


def _usual(model: type[BaseModel]) -> list[str]:
    """A sentence on the defaults that a loss gives to keys of other sections."""
    if not issubclass(model, LossConfig) or not model.usual:
        return []
    words = (f"`{key}: {inline_yaml(value)}`" for key, value in model.usual.items())
    return ["", f"Its defaults of other sections: {', '.join(words)}."]


def settings_table(model: type[BaseModel]) -> list[str]:
    """The lines of a Markdown table of a model's keys, without those that name the model."""
    fields = _explain.walk(model)
    return [*_TABLE, *(_row(_described(key, field)) for key, field in fields if key != "kind")]


def _described(key: str, field: FieldInfo) -> ConfigKey:
    return ConfigKey(key, _explain.expected(field), _default(field), field.description or "")


def _row(entry: ConfigKey) -> str:
    cells = (f"`{entry.key}`", entry.type, f"`{entry.default}`", entry.description)
    escaped = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _default(field: FieldInfo) -> str:
    value = field.get_default(
        call_default_factory=True, validated_data={"loss": LossConfig.model_for({})()}
    )
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_yaml(getattr(item, 'name', item)) for item in value)}]"
    return _yaml(getattr(value, "name", value))


def _yaml(value: Any) -> str:
    return dump_yaml([value]).removeprefix("- ").strip()


def links_page(links: Mapping[str, str]) -> str:
    """The text of docs/links.md, of a table name → `module:Class`."""
    parts = [_LINKS_HEAD]
    for name, address in links.items():
        link: type[ConfiguredLink[Any]] = pkgutil.resolve_name(address)
        parts += [f"## {name}\n", f"{inspect.getdoc(link)}\n"]
        parts += [*settings_table(link.model), ""] if link.model.model_fields else []
    return "\n".join(parts)


if __name__ == "__main__":
    (_DOCS / "configuration.md").write_text(configuration_page(), encoding="utf-8")
    (_DOCS / "links.md").write_text(links_page(LINKS), encoding="utf-8")
