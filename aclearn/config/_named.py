"""Names of classes: of ours, which tables list, or `module:Name` of a user's, with arguments."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    SerializeAsAny,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from aclearn.config._check import check
from aclearn.config._explain import got
from aclearn.config._fields import Group
from aclearn.errors import did_you_mean


@dataclass(frozen=True)
class Named:
    """The names of a table, name → "module:Class"; in `Annotated` it checks and explains a text.

    The table is given by its own address, since it may be in a package above this one.
    """

    table: str
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the table's order."""
        return (*self.others, *self._addresses)

    def __str__(self) -> str:
        return f"{', '.join(self.names)}, or module:Name of yours"

    def words(self) -> str:
        """The names that are possible, for docs."""
        return f"one of {self}"

    def model(self, name: str) -> type[Group] | None:
        """The model of the arguments of our class of this name; None of a user's."""
        address = self._addresses.get(name)
        found = pkgutil.resolve_name(address) if isinstance(address, str) else None
        return getattr(found, "config_model", None)

    def known(self, name: str) -> str:
        """`name`, if it is in the table or names a user's own class.

        Raises:
            ValueError: neither.
        """
        if name in self.names or (isinstance(name, str) and ":" in name):
            return name
        near = did_you_mean(str(name), self.names)
        raise ValueError(f"{name!r} is unknown; expected one of {self}{near}")

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.known, handler(source))

    @property
    def _addresses(self) -> Mapping[str, Any]:
        table: Mapping[str, Any] = pkgutil.resolve_name(self.table)
        return table


class UsersArguments(Group):
    """Keyword arguments of a user's own class, which validates them when it is loaded."""

    model_config = ConfigDict(extra="allow")


class NamedArguments(Group):
    """One entry of a list; in YAML `name` or `name: {arguments}`."""

    table: ClassVar[Named | None] = None
    users: ClassVar[type[Group]] = UsersArguments
    form: ClassVar[str] = "a name or one `name: {arguments}`"

    name: str
    arguments: SerializeAsAny[Group]

    @classmethod
    def words(cls) -> str:
        """The entries that are possible, for docs."""
        return f"{cls.table}, each alone or as `name: {{arguments}}`" if cls.table else cls.form

    @classmethod
    def model_of(cls, name: str) -> type[Group] | None:
        """The model of the arguments of our class of this name; None of a user's."""
        return cls.table.model(name) if cls.table else None

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
        if cls.table is not None:
            cls.table.known(name)
        elif ":" not in str(name):
            raise ValueError(f"expected {cls.form}, got {got(name)}")
        model = cls.model_of(name) or cls.users
        made, mistakes = check(model, {} if arguments is None else arguments, name)
        if made is None:
            raise ValueError("; ".join(key + sentence for key, sentence in mistakes))
        return {"name": name, "arguments": made}

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        return self.arguments.contradictions(config)

    @override
    def doubts(self, config: Any) -> Iterator[str]:
        return self.arguments.doubts(config)

    @model_serializer
    def _to_yaml(self) -> dict[str, Any]:
        return {self.name: self.arguments.model_dump(by_alias=True)}
