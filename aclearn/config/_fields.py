"""The base of every group of keys, and types of several groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    model_validator,
)

from aclearn.config._check import mistakes_of, refusal
from aclearn.config._plain import plain
from aclearn.telemetry.cores import usable_cores


def _whole(value: Any) -> Any:
    """A float without a fraction as an int: people write ten million as 1e7."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: A whole number; 1e7 is one, 1.5, "3" and true are not.
Whole = Annotated[int, Strict(), BeforeValidator(_whole)]


class ByCores(BeforeValidator):
    """Takes `auto` for a count and makes a number of it, where the configuration is read.

    Args:
        rule: gets the cores that this process may use, and gives the count.
    """

    auto = "auto"

    def __init__(self, rule: Callable[[int], int]) -> None:
        super().__init__(lambda value: rule(usable_cores()) if value == self.auto else value)


#: GA3C's rule of thumb (Babaeizadeh et al. 2017, §4.3): an actor for each core,
OnePerCore = Annotated[Whole, ByCores(lambda cores: min(cores, 500))]
#: and two workers of the predictor and of the trainer, where there are two cores.
AtMostTwo = Annotated[Whole, ByCores(lambda cores: min(cores, 2))]

#: Name of a device in torch.
Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")]


class Group(BaseModel):
    """A frozen group of keys; unknown keys and values of another type are errors.

    Raises:
        ConfigError: one line for each mistake.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        allow_inf_nan=False,
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refusal(mistakes_of(error, type(self), values)) from None

    # tells pydantic that `model_validate`, also of a group in a group, does not need this one
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="before")
    @classmethod
    def _empty_group_means_defaults(cls, data: Any) -> Any:
        # A section whose keys are all commented out is null.
        if data is None:
            return {}
        if isinstance(data, dict):
            return {key: plain(value) for key, value in data.items()}
        return data

    def contradictions(self, config: Any) -> Iterator[str]:
        """One sentence for each value of this group that contradicts one of the whole `config`.

        It begins with the dotted key to change and says how to mend it.
        """
        return iter(())

    def doubts(self, config: Any) -> Iterator[str]:
        """One such sentence for each value that has no effect, or an unexpected one."""
        return iter(())

    def changed(self, *keys: str) -> Iterator[str]:
        """Those of the keys whose value is not the default."""
        for key in keys:
            field = type(self).model_fields[key]
            if getattr(self, key) != field.get_default(call_default_factory=True):
                yield key
