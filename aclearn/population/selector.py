"""What a selector is: it says what each member of the next round begins with."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from aclearn.config import Group
from aclearn.errors import ConfigError
from aclearn.population.space import SearchSpace, Values
from aclearn.population.standing import Standing, best_first


@dataclass(frozen=True)
class Origin:
    """What a member begins its next round with.

    Attributes:
        weights_from: the member whose weights, optimiser and normalisers it goes on with; its own
            number: nothing is copied.
        values_from: the member whose hyper-parameters its own come from.
        values: its hyper-parameters.
    """

    weights_from: int
    values_from: int
    values: Values

    @classmethod
    def stays(cls, standing: Standing) -> Origin:
        """That of a member that goes on as it is."""
        return cls(standing.member, standing.member, standing.values)


class Selector:
    """Breeds the next round of a population. Pure: all chance comes from the generator.

    The constructor takes the arguments of `population.selector`. A difference of fitness below its
    standard error must copy nothing: see `Standing.is_clearly_above`.
    """

    config_model: ClassVar[type[Group] | None] = None

    def first(self, members: int, space: SearchSpace, rng: np.random.Generator) -> Sequence[Values]:
        """The hyper-parameters of each member in the first round: drawn within their ranges.

        An empty mapping leaves a member those of the configuration.
        """
        return [space.drawn_first(rng) for _ in range(members)]

    def select(
        self,
        round_: int,
        standings: Sequence[Standing],
        space: SearchSpace,
        rng: np.random.Generator,
    ) -> Sequence[Origin]:
        """The origin of each member's next round, in the order of `standings`.

        Args:
            round_: number of the round that is over, from 1.
            standings: all members after it, in the order of their numbers.
        """
        raise NotImplementedError


class CopyingSelector(Selector):
    """A selector that replaces members, and dead ones at once.

    One is dead if it has diverged: it gets weights and mutated hyper-parameters of a living member
    drawn from the best quarter.
    """

    def choose(
        self,
        round_: int,
        standings: Sequence[Standing],
        space: SearchSpace,
        rng: np.random.Generator,
    ) -> dict[int, Origin]:
        """The origins of the members that do not stay as they are; dead ones may be missing."""
        raise NotImplementedError

    def mutated(
        self, values: Values, space: SearchSpace, rng: np.random.Generator
    ) -> dict[str, float]:
        """Other hyper-parameters near these."""
        raise NotImplementedError

    @override
    def select(
        self,
        round_: int,
        standings: Sequence[Standing],
        space: SearchSpace,
        rng: np.random.Generator,
    ) -> Sequence[Origin]:
        chosen = self.choose(round_, standings, space, rng)
        living = [each for each in best_first(standings) if not each.is_dead]
        origins = []
        for each in standings:
            origin = chosen.get(each.member, Origin.stays(each))
            if each.is_dead and origin.weights_from == each.member and living:
                parent = living[rng.integers(share_of(len(living), 0.25))]
                values = self.mutated(parent.values, space, rng)
                origin = Origin(parent.member, parent.member, values)
            origins.append(origin)
        return origins


def share_of(count: int, share: float) -> int:
    """So many of `count`, at least one."""
    return max(1, round(share * count))


def checked(
    origins: Any, standings: Sequence[Standing], space: SearchSpace, *, name: str
) -> list[Origin]:
    """The origins that a selector gave, if a round can begin with them, with plain numbers.

    Raises:
        ConfigError: they are not one for each member, or name a dead parent or no member, or values
            that are missing or beyond their range.
    """
    where = f"population.selector {name!r}"
    found = list(origins)
    if len(found) != len(standings) or not all(isinstance(each, Origin) for each in found):
        raise ConfigError(
            f"{where}: select() must return an Origin for each of {len(standings)} members, got "
            f"{found!r:.200}"
        )
    members = {each.member for each in standings}
    living = {each.member for each in standings if not each.is_dead}
    plain = []
    for origin, standing in zip(found, standings, strict=True):
        weights_from = _number(origin.weights_from)
        if weights_from is None or weights_from not in living | {standing.member}:
            raise ConfigError(
                f"{where}: member {standing.member} cannot continue with the weights of "
                f"{origin.weights_from!r:.50}, which is no living member; expected one of "
                f"{sorted(living)}"
            )
        values_from = _number(origin.values_from)
        if values_from is None or values_from not in members:
            raise ConfigError(
                f"{where}: member {standing.member} cannot have the hyper-parameters of "
                f"{origin.values_from!r:.50}, which is no member; expected one of {sorted(members)}"
            )
        if fault := "; ".join(_faults(origin, standing, space)):
            raise ConfigError(f"{where}: member {standing.member}: {fault}")
        plain.append(Origin(weights_from, values_from, origin.values))
    return plain


def _number(given: Any) -> int | None:
    """A whole number of any type, as one of numpy; None for what is none."""
    try:
        return operator.index(given)
    except TypeError:
        return None


def _faults(origin: Origin, standing: Standing, space: SearchSpace) -> list[str]:
    if origin.values == standing.values:
        return []
    return list(space.faults(origin.values))
