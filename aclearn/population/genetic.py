"""Generational evolution as FinRL-Podracer's selector describes it (Li et al. 2021, section 4.2).

The released code copies the worst two members over the others, since its ascending sort is read as
a descending one, and mutates nothing. Here the best stay, and parents are drawn by their rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field
from typing_extensions import override

from aclearn.config import Group
from aclearn.population.selector import CopyingSelector, Origin, share_of
from aclearn.population.space import SearchSpace, Values
from aclearn.population.standing import Standing, best_first


class GeneticConfig(Group):
    """Arguments of `genetic`."""

    elite: float = Field(
        default=0.25,
        gt=0.0,
        lt=1.0,
        description="share of the members that stays as it is: the best",
    )
    parents: float = Field(
        default=0.5,
        gt=0.0,
        le=1.0,
        description="share of the members that breeds: the best, drawn by their rank",
    )
    crossover: float = Field(
        default=0.25,
        ge=0.0,
        le=1.0,
        description="probability that a child has a hyper-parameter of a second parent",
    )
    mutation: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="probability that a hyper-parameter of a child is mutated",
    )
    scale: float = Field(
        default=0.1,
        gt=0.0,
        le=1.0,
        description="standard deviation of a mutation, as a share of the range; on a logarithmic "
        "scale where the range is above 0",
    )


class Genetic(CopyingSelector):
    """Elitism; parents by rank; crossed and mutated hyper-parameters; inherited weights.

    A member that is not clearly below the parent drawn for it keeps its weights, and its own
    hyper-parameters are mutated: so a population of equals goes on searching.
    """

    config_model = GeneticConfig

    def __init__(
        self, elite: float, parents: float, crossover: float, mutation: float, scale: float
    ) -> None:
        self._elite, self._parents = elite, parents
        self._crossover, self._mutation, self._scale = crossover, mutation, scale

    @override
    def choose(
        self,
        round_: int,
        standings: Sequence[Standing],
        space: SearchSpace,
        rng: np.random.Generator,
    ) -> dict[int, Origin]:
        ranked = best_first(standings)
        living = [each for each in ranked if not each.is_dead]
        parents = living[: share_of(len(ranked), self._parents)]
        if not parents:
            return {}
        weights = np.arange(len(parents), 0, -1) / (len(parents) * (len(parents) + 1) / 2)
        children = {}
        for each in ranked[share_of(len(ranked), self._elite) :]:
            first, second = (parents[i] for i in rng.choice(len(parents), 2, p=weights))
            if first.is_clearly_above(each):
                values = self.mutated(self._crossed(first, second, rng), space, rng)
                children[each.member] = Origin(first.member, first.member, values)
            else:
                values = self.mutated(each.values, space, rng)
                children[each.member] = Origin(each.member, each.member, values)
        return children

    @override
    def mutated(
        self, values: Values, space: SearchSpace, rng: np.random.Generator
    ) -> dict[str, float]:
        changed = dict(values)
        for each in space:
            if each.key in values and rng.random() < self._mutation:
                at = each.share_of(values[each.key])
                changed[each.key] = each.at(at + rng.normal(0.0, self._scale))
        return changed

    def _crossed(self, first: Standing, second: Standing, rng: np.random.Generator) -> Values:
        """Each hyper-parameter of either parent."""
        return {
            key: second.values[key] if rng.random() < self._crossover else value
            for key, value in first.values.items()
        }
