"""A batch as its tensors, and back: `torch.func` takes tensors, and knows no dataclass of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.func import vmap

Value = TypeVar("Value")


def mapped(value: Value, change: Callable[[Tensor], Tensor]) -> Value:
    """A copy with `change` of every tensor in dataclasses, mappings and tuples."""
    found: Any = value
    if isinstance(found, Tensor):
        found = change(found)
    elif is_dataclass(found) and not isinstance(found, type):
        parts = {each.name: getattr(found, each.name) for each in fields(found)}
        found = replace(found, **{name: mapped(part, change) for name, part in parts.items()})
    elif isinstance(found, Mapping):
        found = {name: mapped(part, change) for name, part in found.items()}
    elif isinstance(found, tuple):
        found = tuple(mapped(part, change) for part in found)
    return found  # type: ignore[no-any-return]


def of_member(value: Value, member: int) -> Value:
    """The part of one member, as views."""
    return mapped(value, lambda tensor: tensor[member])


def for_each_member(function: Callable[..., Value], *values: Any) -> Value:
    """`function` of the values of each member, whose tensors have the members in front.

    It is called once, with `torch.func.vmap`; so are the tensors of its result.
    """
    made: list[Value] = []

    def of_one(tensors: list[Tensor]) -> list[Tensor]:
        made.append(function(*_filled(values, tensors)))
        return _tensors_in(made[0])

    tensors = vmap(of_one)(_tensors_in(values))
    return _filled(made[0], tensors)


def _tensors_in(value: Any) -> list[Tensor]:
    """Every tensor of a value, in the order of `_filled`."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    mapped(value, note)
    return found


def _filled(value: Value, tensors: Sequence[Tensor]) -> Value:
    """A copy with these tensors in place of its own."""
    given = iter(tensors)
    return mapped(value, lambda _: next(given))


def stacked(values: Sequence[Value]) -> Value:
    """One value whose tensors have all the members' in front."""
    columns = zip(*map(_tensors_in, values), strict=True)
    return _filled(values[0], [torch.stack(each) for each in columns])
