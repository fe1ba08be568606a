"""Several policies as one: their networks side by side, and layers that join what they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeVar, get_args

from aclearn.errors import ArgumentError
from aclearn.policies.architecture import POLICY, VALUE, Architecture
from aclearn.policies.layers import Layer, needed_by
from aclearn.types import ActionSpec

#: How the members' distributions become one.
Joining = Literal["mean", "vote", "means"]
JOININGS: Final = get_args(Joining)

Tensor = TypeVar("Tensor")


def ensemble_of(members: Sequence[Architecture], by: Joining) -> Architecture:
    """The architecture of an ensemble; the tensors of member i are called `member_i.<name>`.

    Of choices and numbers it gives

    * mean: the mean of the members' probabilities; of numbers the mean and the standard deviation
      of the mixture of their distributions.
    * vote: the share of the members whose most probable choice it is. Equal shares are ordered by
      the mean of the probabilities, which is a thousandth of the result.
    * means: of numbers the mean of the means and of the logarithms of the standard deviations.

    It is of policies without action masks: a forbidden choice's logit is not trained, and would
    change the shares of the others. The value is the mean of the members' values, where each has
    one.

    Raises:
        ArgumentError: members have other spaces, or their actions cannot be joined so.
    """
    first = members[0]
    for number, other in enumerate(members[1:], start=1):
        if (other.observation, other.action_spec) != (first.observation, first.action_spec):
            raise ArgumentError(
                f"ensemble: member {number} has other spaces than member 0: {other.spaces}, "
                f"expected {first.spaces}"
            )
    action = first.action_spec
    if by == "vote" and action.numbers:
        raise ArgumentError(
            f"ensemble: by vote: the actions are {action}, and numbers have no votes; take mean or "
            "means"
        )
    if by == "means" and not action.numbers:
        raise ArgumentError(
            f"ensemble: by means: the actions are {action}, and choices have no mean; take mean or "
            "vote"
        )
    if any(layer.module is not None for each in members for layer in each.layers):
        raise ArgumentError(
            "ensemble: a member's network is one of your own, whose tensors cannot be renamed; "
            "take members whose networks have layers of aclearn's"
        )
    layers = list(_scalings(members))
    valued = all(_gives_value(each) for each in members)
    for number, each in enumerate(members):
        heads = (POLICY, VALUE) if valued else (POLICY,)
        layers += _renamed(needed_by(each.layers, *heads), number, first)
    layers += _joined(action, len(members), by)
    if valued:
        values = tuple(f"{_prefix(i)}{VALUE}" for i in range(len(members)))
        layers.append(Layer(VALUE, "mean", values, head=True))
    name = f"{by} of {len(members)}"
    return Architecture(name, first.observation, action, tuple(layers))


def ensemble_tensors(members: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The members' tensors under their names in the ensemble."""
    return {
        f"{_prefix(number)}{name}": tensor
        for number, tensors in enumerate(members)
        for name, tensor in tensors.items()
    }


def is_ensemble(architecture: Architecture) -> bool:
    """Whether it is of several members."""
    return any(layer.name.startswith(_prefix(0)) for layer in architecture.layers)


def _prefix(number: int) -> str:
    return f"member_{number}."


def _gives_value(architecture: Architecture) -> bool:
    return architecture.critic == "v" and not architecture.values_actions


def _is_scaling(layer: Layer, architecture: Architecture) -> bool:
    return layer.kind == "scale" and layer.reads[0] in architecture.observation


def _scaled_name(layer: Layer) -> str:
    return f"input.{layer.reads[0]}.{layer.factor:g}"


def _scalings(members: Sequence[Architecture]) -> Iterator[Layer]:
    """The first layers of leaves, which compute in place: members share them."""
    made = {
        _scaled_name(layer): replace(layer, name=_scaled_name(layer))
        for each in members
        for layer in each.layers
        if _is_scaling(layer, each)
    }
    yield from made.values()


def _renamed(layers: Sequence[Layer], number: int, spaces: Architecture) -> Iterator[Layer]:
    """A member's layers but the shared ones, under its own names."""
    names = {leaf: leaf for leaf in spaces.observation}
    names |= {
        layer.name: _scaled_name(layer)
        if _is_scaling(layer, spaces)
        else f"{_prefix(number)}{layer.name}"
        for layer in layers
    }
    for layer in layers:
        if not _is_scaling(layer, spaces):
            yield replace(
                layer,
                name=names[layer.name],
                reads=tuple(names[read] for read in layer.reads),
                next=names.get(layer.next, ""),
            )


def _joined(action: ActionSpec, count: int, by: Joining) -> Iterator[Layer]:
    """The layers that join the members' parameters to those of the policy."""
    heads = [f"{_prefix(i)}{POLICY}" for i in range(count)]
    of_choices = "votes" if by == "vote" else "mean_of_choices"
    of_numbers = "mean" if by == "means" else "mean_of_numbers"
    parts = [(of_choices, size) for size in action.counts]
    parts += [(of_numbers, 2 * action.numbers)] if action.numbers else []
    if len(parts) == 1:
        [(kind, _)] = parts
        yield Layer(POLICY, kind, tuple(heads), head=True)
        return
    start = 0
    for place, (kind, size) in enumerate(parts):
        reads = tuple(f"{head}.{place}" for head in heads)
        for name, head in zip(reads, heads, strict=True):
            yield Layer(name, "part", (head,), units=size, start=start, head=True)
        yield Layer(f"joined.{place}", kind, reads, head=True)
        start += size
    yield Layer(POLICY, "concat", tuple(f"joined.{i}" for i in range(len(parts))), head=True)
