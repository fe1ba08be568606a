"""Seeds of random numbers: no two starts of a role in one run have the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

#: Environments add their number in the group to a seed, and some take 31 bits.
_MOST_ENVIRONMENT_SEEDS: Final = 2**31 - 2**16


class Use(IntEnum):
    """What random numbers are for; each use has numbers of its own."""

    ENVIRONMENTS = 0
    ACTIONS = 1
    PREDICTIONS = 2
    POLICY_MIX = 3
    RESIDENT = 4
    COMPRESSION = 5
    OBSERVATIONS = 6
    NOISE = 7
    REPLAY = 8
    EVALUATION = 9
    LEARNING = 10


@dataclass(frozen=True)
class Seeds:
    """The seeds of one start of one process.

    A resumed run has another generation and a restarted role another start, so that neither plays
    the same episodes again; nor does a crash that one of them led to come back.

    Attributes:
        index: the process's number among those of its role.
        start: number of this start; see `RoleContext`.
    """

    run: int
    generation: int
    index: int = 0
    start: int = 0

    def generator(self, use: Use, *which: int) -> np.random.Generator:
        """A generator for this use; `which` tells several of one process apart."""
        return np.random.default_rng(
            (use, self.run, self.generation, self.start, self.index, *which)
        )

    def number(self, use: Use) -> int:
        """A seed of 31 bits for this use."""
        return int(self.generator(use).integers(2**31))

    @property
    def evaluation(self) -> int:
        """The seed of an evaluator's first environment: the same in each generation and start."""
        generator = Seeds(self.run, generation=0).generator(Use.EVALUATION)
        return int(generator.integers(_MOST_ENVIRONMENT_SEEDS))

    def environments(self, first: int) -> int:
        """The seed of environment `first` of all actors; the next one has the next seed.

        The seeds of all actors of one start are consecutive, so that no two are equal.
        """
        of_start = Seeds(self.run, self.generation, start=self.start)
        begin = of_start.generator(Use.ENVIRONMENTS).integers(_MOST_ENVIRONMENT_SEEDS)
        return int(begin + first) % _MOST_ENVIRONMENT_SEEDS
