"""Populations without selection, with which others are compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from aclearn.config import Group
from aclearn.population.selector import Origin, Selector
from aclearn.population.space import SearchSpace, Values
from aclearn.population.standing import Standing


class NoArguments(Group):
    """A selector without arguments."""


class RandomSearch(Selector):
    """Hyper-parameters drawn once within their whole ranges; every member goes on as it is."""

    config_model = NoArguments

    @override
    def first(self, members: int, space: SearchSpace, rng: np.random.Generator) -> Sequence[Values]:
        return [space.drawn(rng) for _ in range(members)]

    @override
    def select(
        self,
        round_: int,
        standings: Sequence[Standing],
        space: SearchSpace,
        rng: np.random.Generator,
    ) -> Sequence[Origin]:
        return [Origin.stays(each) for each in standings]


class NoSelection(RandomSearch):
    """The hyper-parameters of the configuration in all members, which differ by their seeds."""

    @override
    def first(self, members: int, space: SearchSpace, rng: np.random.Generator) -> Sequence[Values]:
        return [{} for _ in range(members)]
