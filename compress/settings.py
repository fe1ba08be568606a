"""Settings of links: pydantic models, which also give messages and docs."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, cast

from typing_extensions import override

from aclearn.config import Group, validated
from aclearn.errors import ConfigError
from compress.errors import ChainError
from compress.link import Link

SettingsType = TypeVar("SettingsType", bound=Group)


class NoSettings(Group):
    """Settings of links that have none."""


class ConfiguredLink(Link, Generic[SettingsType]):
    """A link whose settings are a pydantic model; the first field is its main setting.

    Attributes:
        name: in a configuration; also the id where a class has no other.
        model: of the settings: a `Group` whose fields have descriptions, for the docs.

    Args:
        main: the main setting.
        settings: any setting by its name.

    Raises:
        ChainError: a setting that is unknown, or a value outside of its range.
    """

    name: ClassVar[str]
    model: ClassVar[type[Group]] = NoSettings

    def __init__(self, *main: Any, **settings: Any) -> None:
        keys = list(self.model.model_fields)
        if not keys and (main or settings):
            raise ChainError(f"{self.name}: expected no settings, got {[*main, *settings]}")
        if len(main) > 1 or (main and keys[0] in settings):
            raise ChainError(
                f"{self.name}: too many settings without a name; the main one is {keys[0]}, the "
                "others have names"
            )
        given = {**dict(zip(keys, main, strict=False)), **settings}
        try:
            self.settings = cast(SettingsType, validated(self.model, given, self.name))
        except ConfigError as error:
            raise ChainError(str(error)) from None

    @property
    @override
    def id(self) -> str:
        return self.name
