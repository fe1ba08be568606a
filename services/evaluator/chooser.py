"""How actions follow from a policy's output, where it is played for its score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aclearn.config import Config
from aclearn.distributions import Distribution, distribution_of, epsilon_greedy
from aclearn.types import ActionSpec


@dataclass(frozen=True)
class Chooser:
    """Chooses actions, greedily or by sampling.

    Attributes:
        of_values: whether the parameters are action values, of which the best is always taken.
    """

    distribution: Distribution
    of_values: bool
    greedy: bool = False

    @classmethod
    def of(cls, config: Config, action: ActionSpec, *, greedy: bool = False) -> Chooser:
        """The chooser of a run."""
        return cls(distribution_of(action), config.loss.acting == "epsilon", greedy)

    def parameters(
        self, parameters: NDArray[np.float32], masks: NDArray[np.bool_] | None
    ) -> NDArray[np.float32]:
        """Masked parameters `[B, P]` of the distribution that plays."""
        masked = self.distribution.mask(parameters, masks)
        return (
            epsilon_greedy(masked, np.zeros(len(masked), np.float32)) if self.of_values else masked
        )

    def choose(
        self,
        parameters: NDArray[np.float32],
        masks: NDArray[np.bool_] | None,
        rng: np.random.Generator,
    ) -> NDArray[np.generic]:
        """Actions `[B, …]` for the parameters `[B, P]` of a policy's output."""
        masked = self.parameters(parameters, masks)
        if self.greedy:
            return self.distribution.mode(masked)
        return self.distribution.sample(masked, rng)[0]
