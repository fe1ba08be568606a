"""How good the members of a population are, and which differences are more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aclearn.population.space import Values

#: Fitness of a member that has diverged or cannot be trained.
DEAD: Final = -math.inf


@dataclass(frozen=True)
class Standing:
    """A member after a round.

    Attributes:
        member: its number.
        fitness: mean return of the evaluator's episodes; `DEAD` without one.
        standard_error: of that mean; 0 of one episode.
        values: hyper-parameters that it was trained with.
    """

    member: int
    fitness: float
    standard_error: float
    values: Values

    @property
    def is_dead(self) -> bool:
        """Whether the member has no weights to continue with."""
        return self.fitness == DEAD

    def is_clearly_above(self, other: Standing) -> bool:
        """Whether its fitness is higher by more than the standard error of the difference."""
        if self.is_dead or other.is_dead:
            return not self.is_dead
        error = math.hypot(self.standard_error, other.standard_error)
        return self.fitness - other.fitness > error


def best_first(standings: Sequence[Standing]) -> list[Standing]:
    """The members in the order of their fitness, the highest first; of equal ones the first."""
    return sorted(standings, key=lambda each: -each.fitness)
