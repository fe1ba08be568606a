"""A batch as its tensors, and back: `torch.func` takes tensors, and knows no dataclass of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

from aclearn.learning.batched.graphs import simplify

Value = TypeVar("Value")
Result = TypeVar("Result")

_NONE = torch.zeros(0)


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


class ForEachMember(Generic[Result]):
    """A function of the values of each member, whose tensors have the members in front.

    `torch.func.vmap` traces it once for each set of shapes; later calls run the recorded batched
    operations. So it must be a function of its arguments alone, and its result's
    structure that of theirs.
    """

    def __init__(self, function: Callable[..., Result]) -> None:
        self._function = function
        self._traced: dict[Any, tuple[Callable[..., Sequence[Tensor]], Result]] = {}

    @torch.no_grad()
    def __call__(self, *values: Any) -> Result:
        """The function's result; its tensors have the members in front too."""
        tensors = _tensors_in(values)
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if shapes not in self._traced:
            self._traced[shapes] = self._trace(values, tensors)
        compute, result = self._traced[shapes]
        return _filled(result, compute(*tensors))

    def _trace(
        self, values: tuple[Any, ...], tensors: Sequence[Tensor]
    ) -> tuple[Callable[..., Sequence[Tensor]], Result]:
        made: list[Result] = []

        def of_one(tensors: list[Tensor]) -> list[Tensor]:
            made.append(self._function(*_filled(values, tensors)))
            return _tensors_in(made[0])

        graph = make_fx(lambda *given: vmap(of_one)(list(given)))(*tensors)
        simplify(graph)
        return graph, mapped(made[0], lambda _: _NONE)


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
