"""Multiple-frequencies population based training (Doulazmi et al. 2025, arXiv 2506.03225).

Plain PBT selects by what is best after one round, and so falls behind random search in the long
run. Here sub-populations evolve at frequencies of their own: the fast ones are greedy, the slow
ones keep what pays off late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, Strict
from typing_extensions import override

from aclearn.config import Group, Whole
from aclearn.population.selector import CopyingSelector, Origin
from aclearn.population.space import SearchSpace, Values
from aclearn.population.standing import Standing, best_first

#: Winners, survivors, those open for migration, losers.
_BRACKETS = 4


class MultipleFrequenciesConfig(Group):
    """Arguments of `mf_pbt`."""

    frequencies: Annotated[tuple[Whole, ...], Strict(False)] = Field(
        default=(1, 4),
        min_length=2,
        description="rounds between two selections in each sub-population, growing from 1; the "
        "paper has [1, 10, 25, 50] for 1000 rounds",
    )
    factor: float = Field(
        default=1.25,
        gt=1.0,
        le=10.0,
        description="f: each hyper-parameter of a loser's copy is multiplied by f or by 1/f",
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        growing = sorted({1, *self.frequencies})
        if list(self.frequencies) != growing:
            yield (
                "population.selector: frequencies of mf_pbt begin with 1 and grow, so that one "
                f"sub-population evolves each round; set them to {growing}"
            )
        least = _BRACKETS * len(self.frequencies)
        if config.population.members is not None and config.population.members < least:
            yield (
                f"population.members: each of {len(self.frequencies)} sub-populations of mf_pbt "
                "has a winner, a survivor, one open for migration and a loser; set it to "
                f"{least} or more, or population.selector to one with fewer frequencies"
            )


class MultipleFrequencies(CopyingSelector):
    """Sub-populations that evolve at several frequencies and exchange members.

    In one that evolves, ranked by fitness, the last quarter copies the first and perturbs its
    hyper-parameters. The third quarter takes in the best members of the other sub-populations that
    are better: from a slower one with their hyper-parameters, from a faster one without them, those
    of its own best member being taken.
    """

    config_model = MultipleFrequenciesConfig

    def __init__(self, frequencies: Sequence[int], factor: float) -> None:
        self._frequencies, self._factors = tuple(frequencies), (1.0 / factor, factor)

    def group_of(self, member: int, members: int) -> int:
        """The number of a member's sub-population; they are of equal sizes, or differ by one."""
        return member * len(self._frequencies) // members

    @override
    def choose(
        self,
        round_: int,
        standings: Sequence[Standing],
        space: SearchSpace,
        rng: np.random.Generator,
    ) -> dict[int, Origin]:
        groups: list[list[Standing]] = [[] for _ in self._frequencies]
        group_of = {}
        for each in best_first(standings):
            group = group_of[each.member] = self.group_of(each.member, len(standings))
            groups[group].append(each)
        origins = dict[int, Origin]()
        for number, (frequency, ranked) in enumerate(zip(self._frequencies, groups, strict=True)):
            if round_ % frequency:
                continue
            quarter = len(ranked) // _BRACKETS
            winners, losers = ranked[:quarter], ranked[-quarter:]
            for winner, loser in zip(winners, losers, strict=True):
                if winner.is_clearly_above(loser):
                    values = self.mutated(winner.values, space, rng)
                    origins[loser.member] = Origin(winner.member, winner.member, values)
            foreign = [each for each in best_first(standings) if group_of[each.member] != number]
            for each in ranked[2 * quarter : 3 * quarter]:
                if foreign[0].is_clearly_above(each):
                    migrant = foreign.pop(0)
                    slower = self._frequencies[group_of[migrant.member]] > frequency
                    of = migrant if slower or ranked[0].is_dead else ranked[0]
                    origins[each.member] = Origin(migrant.member, of.member, of.values)
        return origins

    @override
    def mutated(
        self, values: Values, space: SearchSpace, rng: np.random.Generator
    ) -> dict[str, float]:
        return {
            each.key: each.times(values[each.key], self._factors[rng.integers(2)])
            for each in (space if values else ())
        }
