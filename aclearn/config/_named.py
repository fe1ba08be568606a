"""Entries of a list that name one of our classes or `module:Name`, each with arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import ConfigDict, SerializeAsAny, model_serializer, model_validator
from typing_extensions import override

from aclearn.config._check import check
from aclearn.config._explain import got
from aclearn.config._fields import Group
from aclearn.errors import did_you_mean


class UsersArguments(Group):
    """Keyword arguments of a user's own class, which validates them when it is loaded."""

    model_config = ConfigDict(extra="allow")


class NamedArguments(Group):
    """One entry; in YAML `name` or `name: {arguments}`. A subclass has the table of models."""

    model_config = ConfigDict(title="names or `name: {arguments}`")

    form: ClassVar[str] = "a name or one `name: {arguments}`"
    table: ClassVar[Mapping[str, type[Group]]] = {}
    users: ClassVar[type[Group]] = UsersArguments

    name: str
    arguments: SerializeAsAny[Group]

    @model_validator(mode="before")
    @classmethod
    def _of_yaml(cls, item: Any) -> Any:
        if isinstance(item, cls):
            return item
        if isinstance(item, str):
            item = {item: None}
        if not isinstance(item, Mapping) or len(item) != 1:
            raise ValueError(f"expected {cls.form}, got {got(item)}")
        name, arguments = next(iter(item.items()))
        if not cls.table and ":" not in str(name):
            raise ValueError(f"expected {cls.form}, got {got(name)}")
        known(name, cls.table)
        model = cls.table.get(name, cls.users)
        made, mistakes = check(model, {} if arguments is None else arguments, name)
        if made is None:
            raise ValueError("; ".join(key + sentence for key, sentence in mistakes))
        return {"name": name, "arguments": made}

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        return self.arguments.contradictions(config)

    @model_serializer
    def _to_yaml(self) -> dict[str, Any]:
        return {self.name: self.arguments.model_dump(by_alias=True)}


def known(name: str, table: Mapping[str, Any]) -> str:
    """`name`, if it is in the table or names a user's own class.

    Raises:
        ValueError: neither.
    """
    if name in table or (isinstance(name, str) and ":" in name):
        return name
    names = ", ".join(table)
    raise ValueError(
        f"{name!r} is unknown; expected one of {names}, or module:Name of yours"
        f"{did_you_mean(str(name), table)}"
    )
