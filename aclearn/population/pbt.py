"""Population based training (Jaderberg et al. 2017): exploit by truncation, explore by factors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field
from typing_extensions import override

from aclearn.config import Group
from aclearn.population.selector import CopyingSelector, Origin, share_of
from aclearn.population.space import SearchSpace, Values
from aclearn.population.standing import Standing, best_first


class PBTConfig(Group):
    """Arguments of `pbt`; the defaults are the paper's."""

    share: float = Field(
        default=0.2,
        gt=0.0,
        le=0.5,
        description="share of the members that is replaced, the worst, and share of those that "
        "replace them, the best",
    )
    factor: float = Field(
        default=1.2,
        gt=1.0,
        le=10.0,
        description="f: each hyper-parameter of a copy is multiplied by f or by 2 − f; above 2 by "
        "f or by 1/f",
    )
    resample: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="probability that a hyper-parameter is drawn again from its range instead",
    )


class PBT(CopyingSelector):
    """The worst fifth copies weights and hyper-parameters of the best fifth, and perturbs these.

    A member that is not clearly below the one drawn for it stays.
    """

    config_model = PBTConfig

    def __init__(self, share: float, factor: float, resample: float) -> None:
        self._share, self._resample = share, resample
        self._factors = factors(factor)

    @override
    def choose(
        self,
        round_: int,
        standings: Sequence[Standing],
        space: SearchSpace,
        rng: np.random.Generator,
    ) -> dict[int, Origin]:
        ranked = best_first(standings)
        count = share_of(len(ranked), self._share)
        best = [each for each in ranked[:count] if not each.is_dead]
        copies = {}
        for each in ranked[-count:] if best else ():
            parent = best[rng.integers(len(best))]
            if parent.is_clearly_above(each):
                values = self.mutated(parent.values, space, rng)
                copies[each.member] = Origin(parent.member, parent.member, values)
        return copies

    @override
    def mutated(
        self, values: Values, space: SearchSpace, rng: np.random.Generator
    ) -> dict[str, float]:
        if not values:
            return {}
        return {
            each.key: each.at(rng.random())
            if rng.random() < self._resample
            else each.times(values[each.key], self._factors[rng.integers(2)])
            for each in space
        }


def factors(factor: float) -> tuple[float, float]:
    """The two factors of a perturbation: 1.2 gives 0.8 and 1.2, as published."""
    return (2.0 - factor if factor < 2.0 else 1.0 / factor), factor
