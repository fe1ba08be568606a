"""The actions of an environment, and their sampled form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter

from aclearn.types.bounds import LARGEST_ACTION
from aclearn.types.nested import Path, at, nested

_TANH_BOUNDS = (-1 + 1e-12, 1 - 1e-12)


@dataclass(frozen=True)
class ActionPart:
    """A Discrete, MultiDiscrete, MultiBinary or Box space: all of the actions, or a part of them.

    Attributes:
        path: keys of Dict and indices of Tuple spaces that lead to it.
        counts: number of choices of each of its numbers; empty for a Box.
        starts: the environment's value of each first choice.
        low, high: bounds of each number of a Box, infinite if there is none.
    """

    __pydantic_config__: ClassVar = ConfigDict(ser_json_inf_nan="strings")

    path: Path = ()
    shape: tuple[int, ...] = ()
    dtype: str = "int64"
    counts: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @cached_property
    def scaling(self) -> tuple[NDArray[np.float64], ...]:
        """Low, high, and the centre and half the width of the sampled [-1, 1]."""
        low, high = np.array(self.low), np.array(self.high)
        with np.errstate(invalid="ignore"):
            centre, half = (low + high) / 2, (high - low) / 2
        bounded = np.isfinite(half)
        return low, high, np.where(bounded, centre, 0.0), np.where(bounded, half, 1.0)

    def to_env(self, sampled: NDArray[Any], squash: bool) -> NDArray[Any]:
        """The environments' form, `[B, *shape]`, of its sampled numbers `[B, n]`."""
        if self.counts:
            taken = sampled.astype(np.int64) + np.array(self.starts, np.int64)
        else:
            low, high, centre, half = self.scaling
            wide = sampled.astype(np.float64)
            taken = np.clip(centre + half * (np.tanh(wide) if squash else wide), low, high)
        return taken.astype(self.dtype).reshape(-1, *self.shape)

    def from_env(self, actions: Sequence[Any], squash: bool) -> NDArray[Any]:
        """Sampled numbers `[B, n]` of which `to_env` makes `actions`."""
        given = np.array([at(action, self.path) for action in actions]).reshape(len(actions), -1)
        if self.counts:
            return given - np.array(self.starts, np.int64)
        _, _, centre, half = self.scaling
        inside = (given.astype(np.float64) - centre) / np.where(half > 0.0, half, 1.0)
        # tanh reaches its bounds for infinite numbers only; this rounds to them in float32
        return np.arctanh(np.clip(inside, *_TANH_BOUNDS)) if squash else inside


@dataclass(frozen=True)
class ActionSpec:
    """The actions of an environment, and the form in which they are sampled.

    A sampled action is one int32 for a single discrete choice. Otherwise it is a vector: the
    choices of all parts, then the numbers of all Boxes; int32 without a Box, else float32. In a
    bounded Box, -1 and 1 stand for the bounds.

    Attributes:
        kind: "discrete": one choice; "multi_discrete": several; "box": numbers; "mixed": both.
        squash: numbers go through tanh; otherwise they are clipped at the bounds.
    """

    kind: str
    parts: tuple[ActionPart, ...]
    squash: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for strict JSON, whose numbers are finite: a missing bound is a text."""
        data: dict[str, Any] = json.loads(_plain().dump_json(self))
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ActionSpec:
        """The specification that `to_dict` described, directly or through JSON.

        Raises:
            ValueError: it describes none.
        """
        return _plain().validate_python(data)

    @classmethod
    def discrete(cls, count: int, start: int = 0) -> Self:
        """One of `count` actions; the first has the value `start` in the environment."""
        return cls.of((ActionPart(counts=(count,), starts=(start,)),))

    @classmethod
    def of(cls, parts: tuple[ActionPart, ...], *, squash: bool = False) -> Self:
        """Actions of these parts."""
        kinds: set[Literal["box", "multi_discrete"]] = {
            "multi_discrete" if part.counts else "box" for part in parts
        }
        kind = "mixed" if len(kinds) > 1 else kinds.pop()
        one = len(parts) == 1 and not parts[0].shape
        return cls("discrete" if one and parts[0].counts else kind, parts, squash)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of choices of each discrete number."""
        return sum((part.counts for part in self.parts), ())

    @cached_property
    def numbers(self) -> int:
        """Count of the numbers of all Boxes."""
        return sum(len(part.low) for part in self.parts)

    @property
    def mask_width(self) -> int:
        """A, the number of choices of all discrete numbers, which a mask allows or not."""
        return sum(self.counts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sampled action."""
        return () if self.kind == "discrete" else (len(self.counts) + self.numbers,)

    @property
    def dtype(self) -> Literal["int32", "float32"]:
        """Dtype of a sampled action."""
        return "float32" if self.numbers else "int32"

    def __str__(self) -> str:
        """A text: "6 actions", "choices of 3, 2 and 4 numbers"."""
        if self.kind == "discrete":
            return f"{self.counts[0]} actions"
        choices = f"choices of {', '.join(map(str, self.counts))}" if self.counts else ""
        numbers = f"{self.numbers} numbers" if self.numbers else ""
        return " and ".join(filter(None, (choices, numbers)))

    def contains(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        """Which sampled actions `[…, *shape]` are valid: choices in range, bounded numbers."""
        exist = self.choices_exist(actions)
        if self.kind == "discrete":
            return exist
        numbers = actions[..., len(self.counts) :]
        result: NDArray[np.bool_] = exist & (np.abs(numbers) <= LARGEST_ACTION).all(-1)
        return result

    def choices_exist(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        """Which sampled actions `[…, *shape]` have all their choices in range."""
        if self.kind == "discrete":
            found: NDArray[np.bool_] = (actions >= 0) & (actions < self.counts[0])
            return found
        choices = actions[..., : len(self.counts)]
        whole = choices == np.floor(choices)
        exist: NDArray[np.bool_] = ((choices >= 0) & (choices < self.counts) & whole).all(-1)
        return exist

    def clipped(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        """Which numbers `[…, n]` of sampled actions `[…, *shape]` the bounds clip."""
        numbers = actions[..., len(self.counts) :]
        if self.squash:
            return np.zeros(numbers.shape, np.bool_)
        low, high = self._sampled_bounds
        result: NDArray[np.bool_] = (numbers < low) | (numbers > high)
        return result

    @cached_property
    def _sampled_bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Least and largest sampled number `[n]` that is not clipped."""
        scalings = [part.scaling for part in self.parts if part.low]
        low, high, centre, half = (np.concatenate(each) for each in zip(*scalings, strict=True))
        return (low - centre) / half, (high - centre) / half

    def allow_something(self, masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which masks `[…, A]` leave each choice something to take, `[…]`."""
        each = np.logical_or.reduceat(masks, self._mask_starts, axis=-1)
        result: NDArray[np.bool_] = np.logical_and.reduce(each, axis=-1)
        return result

    def allowed(self, actions: NDArray[Any], masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which sampled actions `[…, *shape]`, that exist, their masks `[…, A]` allow."""
        choices = actions[..., None] if self.kind == "discrete" else actions
        places = choices[..., : len(self.counts)].astype(np.int64) + self._mask_starts
        each = np.take_along_axis(masks, places, axis=-1)
        result: NDArray[np.bool_] = np.logical_and.reduce(each, axis=-1)
        return result

    @cached_property
    def _mask_starts(self) -> NDArray[np.int64]:
        """Where each choice's part of a mask begins."""
        return np.cumsum((0, *self.counts[:-1]), dtype=np.int64)

    def to_env(self, actions: NDArray[Any]) -> Sequence[Any]:
        """The B actions for the environments, from sampled ones `[B, *shape]`.

        They have the types that their space's `sample()` gives: a NumPy scalar for `Discrete`, else
        arrays, in dicts and tuples.

        Raises:
            ValueError: an action is invalid.
        """
        parts = self._parts_to_env(actions)
        rows = {  # a number without axes is a scalar of a choice, and an array of a Box
            part.path: list(of) if part.counts else [np.asarray(row) for row in of]
            for part, of in zip(self.parts, parts.values(), strict=True)
        }
        if () in rows:
            return rows[()]
        return [nested({path: part[b] for path, part in rows.items()}) for b in range(len(actions))]

    def to_env_together(self, actions: NDArray[Any]) -> Any:
        """The B actions as one, as a vector environment takes them: arrays `[B, …]`, nested.

        Raises:
            ValueError: an action is invalid.
        """
        return nested(self._parts_to_env(actions))

    def _parts_to_env(self, actions: NDArray[Any]) -> dict[Path, NDArray[Any]]:
        """Path → the environments' form `[B, *shape]`, in the order of the parts."""
        if self.kind == "discrete":
            (only,) = self.parts
            return {only.path: only.to_env(self._checked_choices(actions), self.squash)}
        if not self.contains(actions).all():
            raise ValueError(f"actions: expected {self}, got {actions.tolist()}")
        choice, number, parts = 0, len(self.counts), {}
        for part in self.parts:
            if part.counts:
                start, choice = choice, choice + len(part.counts)
                stop = choice
            else:
                start, number = number, number + len(part.low)
                stop = number
            parts[part.path] = part.to_env(actions[:, start:stop], self.squash)
        return parts

    def from_env(self, actions: Sequence[Any]) -> NDArray[Any]:
        """Sampled actions `[B, *shape]` of which `to_env` makes these; integers or float64."""
        parts = [part.from_env(actions, self.squash) for part in self.parts]
        choices = [part for part, of in zip(parts, self.parts, strict=True) if of.counts]
        numbers = [part for part, of in zip(parts, self.parts, strict=True) if not of.counts]
        sampled = np.concatenate([*choices, *numbers], axis=1)
        return sampled[:, 0] if self.kind == "discrete" else sampled

    def _checked_choices(self, actions: NDArray[Any]) -> NDArray[Any]:
        if actions.dtype.kind not in "iu":
            raise ValueError(f"actions: expected integers, got {actions.dtype}")
        # necessary: an action out of range makes ale-py 0.12.1 hang or end the process
        listed = actions.tolist()  # faster than two reductions by numpy for a few tens of actions
        if min(listed) < 0 or max(listed) >= self.counts[0]:
            raise ValueError(f"actions: expected 0 to {self.counts[0] - 1}, got {listed}")
        return actions


@cache
def _plain() -> TypeAdapter[ActionSpec]:
    return TypeAdapter(ActionSpec)
