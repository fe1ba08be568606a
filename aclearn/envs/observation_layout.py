"""From an environment's observation space to the leaves of a policy's observations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aclearn.envs.contract import ContractError
from aclearn.envs.leaf_layouts import LeafLayout, channels_of, layout_of
from aclearn.errors import EnvironmentFailure, did_you_mean, kind_of
from aclearn.types import (
    OBSERVATION,
    LeafSpec,
    ObservationForm,
    ObservationPart,
    ObservationSpec,
)
from aclearn.types.nested import Path, at

if TYPE_CHECKING:
    from aclearn.config import EnvConfig

#: Most leaves: a message has room for 256 arrays, and an unroll up to three for each leaf.
_MOST_LEAVES = 64
#: Longest name of a leaf: a message's header has room for `_MOST_LEAVES` of them.
_MOST_CHARACTERS = 100
#: They separate the parts of layers' names.
_RESERVED = "/:"
#: Names that networks have for their own layers, inputs and outputs.
_TAKEN = re.compile(
    r"(input|convolutions|sections|flatten|concat|hidden|value_hidden|network|policy|policy_mean|"
    r"(value|q)(_normalised|_part)?|parameters|(next_)?state_\d+|(state_)?action|action_mask)(\..*)?"
)

_LEAF_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class _Container:
    """A Dict or Tuple: the keys of all its parts, and of those that the policy sees."""

    path: Path
    is_tuple: bool
    keys: frozenset[str | int]
    seen: tuple[str | int, ...]

    def check(self, shown: Any) -> None:
        """Raise `ContractError` unless it has all parts, and no key beside the space's."""
        given: Iterable[str | int] = ()
        if self.is_tuple and isinstance(shown, tuple | list):
            given = range(len(shown))
        elif not self.is_tuple and isinstance(shown, Mapping):
            given = shown
        if not set(self.seen) <= set(given) <= self.keys:
            raise ContractError(
                "observation_keys",
                f"{_name(self.path) or OBSERVATION} is {kind_of(shown)} with the keys "
                f"{', '.join(map(str, given))}; expected {', '.join(map(str, self.seen))}",
            )


class ObservationLayout:
    """Fills one batch of observations, leaf → [B, *shape], after another.

    Args:
        env: its frame_stack, channels, ignore and action_mask.
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, nested. A Box
            of uint8 with two or three axes is an image, any other is flat.

    Attributes:
        spec: the leaves. Those of a Dict or Tuple are named by their path: "position.left".

    Raises:
        EnvironmentFailure: observations that are not supported, or options that do not fit them.
    """

    def __init__(self, space: Any, name: str, env: EnvConfig, *, num_envs: int) -> None:
        self._name, self._num_envs, self._env = name, num_envs, env
        self._hidden = {*env.ignore, *filter(None, (env.mask_part,))}
        self._space, self._paths = space, dict[str, Path]()
        self._parts: list[ObservationPart] = []
        self._leaves: list[LeafLayout] = []
        self._containers: list[_Container] = []  # each before those inside it
        some = self._read(space, ())
        self._check_hidden()
        if not some:
            raise EnvironmentFailure(
                f"environment {name}: its observations {space} have nothing for the policy"
            )
        self._check_leaves()
        self.spec = ObservationSpec({leaf.name: leaf.leaf for leaf in self._leaves})
        mask = None if env.mask_part is None else self._paths[env.mask_part]
        self.form = ObservationForm(tuple(self._parts), mask)

    def begin(self) -> dict[str, NDArray[Any]]:
        """A fresh batch for the coming step; images hold their older frames already."""
        return {leaf.name: leaf.begin() for leaf in self._leaves}

    def write(self, b: int, observation: Any) -> None:
        """Write environment b's observation into the batch.

        Raises:
            ContractError: it does not fit the space.
        """
        for part, leaf in self._found(observation):
            leaf.write(b, part)

    def write_first(self, b: int, observation: Any) -> None:
        """Write environment b's first observation of an episode; errors as of `write`."""
        for part, leaf in self._found(observation):
            leaf.write_first(b, part)

    def write_group(self, observations: Any, first: NDArray[np.bool_]) -> None:
        """Write a vector environment's observations of all B environments into the batch.

        Args:
            first: [B], where they are the first of an episode.

        Raises:
            ContractError: they do not fit the space.
        """
        for part, leaf in self._found(observations):
            leaf.write_group(part, first)

    def _found(self, observation: Any) -> Iterator[tuple[Any, LeafLayout]]:
        for container in self._containers:
            container.check(at(observation, container.path))
        for part, leaf in zip(self._parts, self._leaves, strict=True):
            yield at(observation, part.path), leaf

    def errors(self, b: int, observation: Any) -> list[ContractError]:
        """Errors of all parts of environment b's observation, for a report."""
        checks = [(container.path, container.check) for container in self._containers]
        for part, leaf in zip(self._parts, self._leaves, strict=True):
            checks.append((part.path, partial(leaf.write_first, b)))
        found: dict[Path, ContractError] = {}
        for path, check in checks:
            if any(path[: len(above)] == above for above in found):
                continue  # inside of what has an error
            try:
                check(at(observation, path))
            except ContractError as error:
                found[path] = error
        return list(found.values())

    def mask_of(self, observation: Any) -> Any:
        """The mask in an observation of the space; None: it has none."""
        try:
            return at(observation, self._paths[self._env.mask_part or ""])
        except (LookupError, TypeError):  # no such part, or nothing that has parts
            return None

    def out_of_range(self) -> dict[int, ContractError]:
        """Each environment with a number in the batch that no run can learn from → the error."""
        found: dict[int, ContractError] = {}
        for leaf in self._leaves:
            found |= leaf.out_of_range()
        return found

    def check_space(self, space: Any) -> None:
        """Raise `ContractError` if the space has other leaves than the first one."""
        if space is self._space or space == self._space:
            return
        try:
            other = ObservationLayout(space, self._name, self._env, num_envs=1)
        except EnvironmentFailure as error:
            raise ContractError("observation_space", str(error)) from error
        if _without_bounds(other.spec) != _without_bounds(self.spec):
            raise ContractError(
                "observation_space", f"its space has become {other.spec}; it was {self.spec}"
            )

    def _read(self, space: Any, path: Path, *, hidden: bool = False) -> bool:
        """Read the part at this path; whether the policy sees something of it.

        Hidden parts are read for their names: the mask may be inside an ignored one.
        """
        name = _name(path)
        hidden = hidden or name in self._hidden
        if self._paths.setdefault(name, path) != path and not hidden:
            raise EnvironmentFailure(
                f"environment {self._name}: its observations have two parts {name!r}; wrap it"
            )
        if not isinstance(space, spaces.Dict | spaces.Tuple):
            if not hidden:
                self._leaves.append(self._leaf(space, path, name))
            return not hidden
        inner = dict(space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces))
        place = len(self._containers)
        seen = [k for k, part in inner.items() if self._read(part, (*path, k), hidden=hidden)]
        is_tuple = isinstance(space, spaces.Tuple)
        if seen:
            self._containers.insert(
                place, _Container(path, is_tuple, frozenset(inner), tuple(seen))
            )
        return bool(seen)

    def _leaf(self, space: Any, path: Path, where: str) -> LeafLayout:
        if not isinstance(space, _LEAF_SPACES):
            inside = f" (in {where}; env.ignore: [{where}] leaves it out)" if where else ""
            raise EnvironmentFailure(
                f"environment {self._name}: {type(space).__name__} observations are not supported: "
                f"{space}{inside}. Expected Box, Discrete, MultiDiscrete, MultiBinary, or a Dict "
                "or Tuple of these; wrap the environment "
                "(gymnasium.wrappers.TransformObservation)"
            )
        if 0 in space.shape:
            raise EnvironmentFailure(
                f"environment {self._name}: {where or 'its observation'} has no numbers: {space}"
                f"{f'; set env.ignore: [{where}]' if where else ''}"
            )
        name = f"{where}_" if _TAKEN.fullmatch(where) else where or OBSERVATION
        part = _part(space, name, path, self._env)
        high = max(1, int(space.high.max())) if part.kind == "image" else LeafSpec.high
        self._parts.append(part)
        return layout_of(part, num_envs=self._num_envs, high=high)

    def _check_hidden(self) -> None:
        known = [name for name in self._paths if name]
        for unknown in sorted(self._hidden - {*known}):
            key = "env.ignore" if unknown in self._env.ignore else "env.action_mask"
            raise EnvironmentFailure(
                f"environment {self._name}: {key} names {unknown!r}, which its observations lack"
                f"{did_you_mean(unknown, known) or '.'} They have {', '.join(known) or 'no parts'}"
            )

    def _check_leaves(self) -> None:
        names, where = [leaf.name for leaf in self._leaves], f"environment {self._name}"
        for name in names:
            taken = names.count(name) > 1 or any(c in name for c in _RESERVED)
            if taken or not name.isprintable() or len(name) > _MOST_CHARACTERS:
                raise EnvironmentFailure(
                    f"{where}: {name!r:.100} cannot be a leaf's name, which is unique, printable, "
                    f"without {' and '.join(_RESERVED)}, and has at most {_MOST_CHARACTERS} "
                    "characters; wrap the environment"
                )
        if len(names) > _MOST_LEAVES:
            raise EnvironmentFailure(
                f"{where}: its observations have {len(names)} leaves, at most {_MOST_LEAVES} are "
                "supported; leave some out by env.ignore, or join them "
                "(gymnasium.wrappers.FlattenObservation)"
            )
        stack = self._env.frame_stack
        if stack != 1 and not any(leaf.leaf.is_image for leaf in self._leaves):
            raise EnvironmentFailure(
                f"{where}: env.frame_stack is {stack}, but only images (uint8 with 2 or 3 axes) "
                f"are stacked and these observations are {self._space}. Set env.frame_stack: 1"
            )


def _part(space: Any, name: str, path: Path, env: EnvConfig) -> ObservationPart:
    """The part of a space that becomes a leaf of this name."""
    if isinstance(space, spaces.Discrete):
        counts, starts = (int(space.n),), (int(space.start),)
        return ObservationPart(name, path, (), "int64", "choices", counts, starts)
    shape, dtype = tuple(space.shape), str(np.dtype(space.dtype))
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = (tuple(each.flatten().tolist()) for each in (space.nvec, space.start))
        return ObservationPart(name, path, shape, dtype, "choices", counts, starts)
    if isinstance(space, spaces.MultiBinary):
        return ObservationPart(name, path, shape, dtype, "switches")
    if space.dtype != np.uint8 or len(shape) not in (2, 3):
        return ObservationPart(name, path, shape, dtype)
    channels: Literal["first", "last"] | None = None
    if len(shape) == 3:
        channels = env.channels or channels_of(shape)
    frames = env.frame_stack
    return ObservationPart(name, path, shape, dtype, "image", channels=channels, frames=frames)


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _without_bounds(spec: ObservationSpec) -> dict[str, LeafSpec]:
    return {name: replace(leaf, high=LeafSpec.high) for name, leaf in spec.items()}
