"""YAML as users expect it: 3e-4 is a number, off is a word, and duplicate keys are errors.

PyYAML reads YAML 1.1, where `3e-4` is text and `off` is false. The resolvers below are those of
YAML 1.2's core schema, plus `1_000_000`. The value of a text key is read as written: `name: 007`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import yaml

_NULL, _BOOL, _INT, _FLOAT, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "merge")
)
_STR = "tag:yaml.org,2002:str"
#: Of a tuple, as PyYAML names it: `!!python/tuple [84, 84]`.
_TUPLE = "tag:yaml.org,2002:python/tuple"
#: Depth of nested mappings and lists; a configuration needs five.
DEEPEST = 50
#: Most values that aliases may add. They are read once, but checked and written one by one, so that
#: lists of two aliases each would grow a thousandfold with every ten lines.
_MOST_REPEATED = 10_000
_RESOLVERS: tuple[tuple[str, re.Pattern[str], list[str]], ...] = (
    (_NULL, re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    (_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    (_INT, re.compile(r"^[-+]?[0-9][0-9_]*$"), list("-+0123456789")),
    (
        _FLOAT,
        re.compile(
            r"^[-+]?(?:(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
        ),
        list("-+.0123456789"),
    ),
    (_MERGE, re.compile(r"^<<$"), ["<"]),
)


class YamlError(Exception):
    """Invalid YAML; the message names the place, counted from 1."""


class Keys(NamedTuple):
    """The keys that a reader must know in advance; all dotted."""

    sections: frozenset[str]
    texts: frozenset[str]


class Document(NamedTuple):
    """The contents of a YAML text, and dotted key in a section → its line, from 1 on."""

    value: Any
    lines: dict[str, int]


@dataclass
class _Part:
    """A node: its number of values with those behind aliases, and its depth."""

    anchor: str | None
    size: int = 1
    height: int = 1


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._around: list[_Part] = []  # the enclosing nodes, from the top
        self._anchored: dict[str, _Part] = {}
        self._repeated = 0  # values that only aliases add

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        line, anchor = event.start_mark.line + 1, getattr(event, "anchor", None)
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias and any(part.anchor == anchor for part in self._around):
            raise YamlError(f"line {line}: the alias *{anchor} refers to a part of itself")
        part = self._anchored.get(str(anchor)) if is_alias else _Part(anchor)
        if part is None:
            return super().compose_node(parent, index)  # raises: nothing has this anchor
        if len(self._around) + part.height > DEEPEST:
            raise YamlError(f"line {line}: nested more than {DEEPEST} deep")
        self._around.append(part)
        try:
            node = super().compose_node(parent, index)
        finally:
            self._around.pop()
        if is_alias:
            self._repeated += part.size
            if self._repeated > _MOST_REPEATED:
                raise YamlError(
                    f"line {line}: the aliases up to *{anchor} repeat more than {_MOST_REPEATED} "
                    "values; write fewer of them"
                )
        elif anchor is not None:
            self._anchored[anchor] = part
        if self._around:
            above = self._around[-1]
            above.size += part.size
            above.height = max(above.height, part.height + 1)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first_line: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == _MERGE or not isinstance(key_node, yaml.ScalarNode):
                continue
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in first_line:
                raise YamlError(
                    f"line {line}: the key {key} stands twice in the same section, first in line "
                    f"{first_line[key]}; remove one of them"
                )
            first_line[key] = line
        return super().construct_mapping(node, deep=deep)

    def construct_int(self, node: yaml.ScalarNode) -> int:
        return int(self.construct_scalar(node).replace("_", ""))  # 012 is 12, not octal


_NO_KEYS = Keys(frozenset(), frozenset())


class _Dumper(yaml.SafeDumper):
    """Quotes text that either version of YAML would read as another type."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: list(resolvers)
        for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_tag, _pattern, _first)
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)
_Loader.add_constructor(_INT, _Loader.construct_int)


class _Tuple(tuple[Any, ...]):
    """A tuple that stays one in a file; others become lists."""


def _read_tuple(loader: _Loader, node: yaml.SequenceNode) -> tuple[Any, ...]:
    return tuple(loader.construct_sequence(node, deep=True))


_Loader.add_constructor(_TUPLE, _read_tuple)
_Dumper.add_representer(_Tuple, lambda dumper, value: dumper.represent_sequence(_TUPLE, value))


def with_tuples(value: Any) -> Any:
    """A value for `dump_yaml`, which then writes tuples as such."""
    if isinstance(value, dict):
        return {key: with_tuples(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return (_Tuple if isinstance(value, tuple) else list)(map(with_tuples, value))
    return value


def parse_yaml(text: str, *, keys: Keys = _NO_KEYS, at: str = "") -> Document:
    """The value of one YAML document, and the lines of its keys.

    Args:
        at: the key whose value it is; "" for a whole configuration.

    Raises:
        YamlError: not YAML, several documents, or a duplicate key in a mapping.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return Document(None, {})
            lines: dict[str, int] = {}
            node = _as_written(node, at, keys, lines)
            return Document(loader.construct_document(node), lines)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as exc:
        _refuse(exc)
    except (yaml.YAMLError, ValueError) as exc:  # forbidden characters, `!!int x`: without a line
        raise YamlError(" ".join(str(exc).split())) from exc
    except (KeyError, AttributeError) as exc:  # PyYAML's own, of `!!bool x` and `!!timestamp x`
        raise YamlError("a value does not have the type of its tag (!!…)") from exc


def _as_written(node: yaml.Node, at: str, keys: Keys, lines: dict[str, int]) -> yaml.Node:
    """The node, as text for a text key; adds the lines of the keys below it to `lines`."""
    if at in keys.texts and node.tag in (_BOOL, _INT, _FLOAT):
        return yaml.ScalarNode(_STR, node.value, node.start_mark, node.end_mark)
    if at in keys.sections and isinstance(node, yaml.MappingNode):
        # a copy: an alias may use the same node elsewhere
        node = yaml.MappingNode(node.tag, list(node.value), node.start_mark, node.end_mark)
        for i, (key, value) in enumerate(node.value):
            if key.tag == _MERGE:
                node.value[i] = (key, _as_written(value, at, keys, {}))
            elif isinstance(key, yaml.ScalarNode):
                dotted = f"{at}.{key.value}" if at else key.value
                lines[dotted] = key.start_mark.line + 1
                node.value[i] = (key, _as_written(value, dotted, keys, lines))
    return node


def _refuse(exc: yaml.MarkedYAMLError) -> NoReturn:
    mark = exc.problem_mark or exc.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    what = ", ".join(part for part in (exc.context, exc.problem) if part)
    raise YamlError(f"{where}not valid YAML: {what}") from exc


def dump_yaml(value: Any) -> str:
    """Block-style YAML in the given order; `parse_yaml` reads it back to an equal value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def canonical_yaml(value: Any) -> str:
    """YAML that is the same for equal values, whatever the order of their keys."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=True, allow_unicode=True)


def inline_yaml(value: Any) -> str:
    """A value in one line of YAML; `parse_yaml` reads it back to an equal value."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, width=1000, sort_keys=False)
    return text.removesuffix("...\n").strip()
