"""The base of every group of keys, and the types that more than one group uses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Strict, model_validator


def _whole(value: Any) -> Any:
    """1e7 is how people write ten million, so a float without a fraction counts as whole."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: A whole number; 1e7 is one, 1.5, "3" and true are not.
Whole = Annotated[int, Strict(), BeforeValidator(_whole)]


class Group(BaseModel):
    """A frozen group of keys that refuses keys it does not know and values of another type."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_group_means_defaults(cls, data: Any) -> Any:
        # `loss:` with every key below it commented out reads as null.
        return {} if data is None else data
