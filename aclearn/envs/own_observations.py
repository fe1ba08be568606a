"""Observations in the environment's own form, for a policy that has no environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.contract import ContractError
from aclearn.envs.leaf_layouts import LeafLayout, layout_of
from aclearn.envs.own_spaces import observation_space
from aclearn.errors import ArgumentError
from aclearn.types import ObservationForm, ObservationPart, ObservationSpec
from aclearn.types.nested import at, nested
from aclearn.types.observation_spec import Observations


class ReadObservation(NamedTuple):
    """What a policy needs of an observation, or of a batch of them.

    Attributes:
        leaves: leaf → `[B, *shape]`, with B = 1 for a single observation.
        mask: the action mask that the observation has, in the environment's form; None: it has
            none.
    """

    leaves: dict[str, NDArray[Any]]
    mask: Any
    batched: bool


class OwnObservations:
    """Reads observations in the form of the environment's space, and shows leaves in that form."""

    def __init__(self, observation: ObservationSpec, form: ObservationForm) -> None:
        self.space = observation_space(observation, form)
        self._form = form
        self._singles = [(part, _layout(part, 1)) for part in form.parts]

    def read(self, observation: Any) -> ReadObservation:
        """The leaves of an observation, or of a batch with one more axis in front of each array.

        Raises:
            ArgumentError: it has another form, or numbers that its space does not have.
        """
        parts = self._form.parts
        try:
            arrays = [np.asarray(at(observation, part.path)) for part in parts]
        except (LookupError, TypeError, ValueError) as error:
            raise self._misfit(observation) from error
        front = arrays[0].shape[: arrays[0].ndim - len(parts[0].stacked_shape)]
        shapes = [(*front, *part.stacked_shape) for part in parts]
        if [array.shape for array in arrays] != shapes or len(front) > 1 or 0 in front:
            raise self._misfit(observation)
        count = front[0] if front else 1
        leaves = {
            part.leaf: _read(part, array.reshape(count, part.frames, *part.shape))
            for part, array in zip(parts, arrays, strict=True)
        }
        return ReadObservation(leaves, self._mask(observation), bool(front))

    def show(self, leaves: Observations, b: int) -> Any:
        """Row b of the leaves, as an observation of `space`."""
        shown = {
            part.path: layout.shown(leaves[part.leaf][b]).astype(part.dtype)
            for part, layout in self._singles
        }
        choices = {part.path for part, _ in self._singles if part.kind == "choices"}
        # a single choice is a number, as spaces sample it
        return nested({path: v[()] if path in choices else v for path, v in shown.items()})

    def _mask(self, observation: Any) -> Any:
        try:
            return None if self._form.mask is None else at(observation, self._form.mask)
        except LookupError:  # as `show` gives it
            return None

    def _misfit(self, observation: Any) -> ArgumentError:
        stacks = [part.frames for part in self._form.parts if part.frames > 1]
        how = f"; a picture has {stacks[0]} frames in front, the newest last" if stacks else ""
        return ArgumentError(
            f"observation: expected {self.space}, or a batch with one more axis in front of each "
            f"array{how}; got {words_of_arrays(observation)}"
        )


def words_of_arrays(value: Any) -> str:
    """The dtypes and shapes of an array, or of a nested mapping or tuple of arrays."""
    if isinstance(value, Mapping):
        inner = (f"{name}: {words_of_arrays(part)}" for name, part in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, tuple):
        return f"({', '.join(map(words_of_arrays, value))})"
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        return f"no array ({error})"
    return f"{array.dtype} {array.shape}"


def _read(part: ObservationPart, given: NDArray[Any]) -> NDArray[Any]:
    """The leaf `[B, *leaf.shape]` of a part's `[B, frames, *part.shape]`."""
    layout = _layout(part, len(given))
    try:
        for s in range(part.frames):
            rows = layout.begin()
            for b, frames in enumerate(given):
                layout.write(b, frames[s])
    except ContractError as error:
        raise ArgumentError(f"observation: {error}") from error
    for fault in layout.out_of_range().values():
        raise ArgumentError(f"observation: {fault}")
    return rows


def _layout(part: ObservationPart, count: int) -> LeafLayout:
    return layout_of(part, num_envs=count)
