"""Several independent choices and numbers, such as MultiDiscrete and Dict actions."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions.categorical import Categorical
from aclearn.distributions.distribution import Distribution, Floats
from aclearn.distributions.gaussian import Gaussian
from aclearn.types import ActionSpec


class Joint:
    """Distributions of C choices and n numbers `[B, C + n]`, by all logits, then 2n numbers."""

    def __init__(self, spec: ActionSpec) -> None:
        self._parts: list[Distribution] = [Categorical(ActionSpec.discrete(n)) for n in spec.counts]
        if spec.numbers:
            self._parts.append(Gaussian(spec))
        widths = [part.parameter_count for part in self._parts]
        self._columns = [slice(*ends) for ends in pairwise(accumulate(widths, initial=0))]
        self._choices = len(spec.counts)
        self._logits, self._dtype = spec.mask_width, spec.dtype
        self.parameter_count = self._columns[-1].stop

    def mask(self, parameters: Floats, mask: NDArray[np.bool_] | None) -> Floats:
        """Parameters whose choices are masked; each choice needs a possible value."""
        if mask is None:
            return parameters
        if mask.shape != (len(parameters), self._logits):
            raise ValueError(
                f"mask: expected {[len(parameters), self._logits]}, with a possible action in each "
                f"row; got {list(mask.shape)}"
            )
        return np.hstack([part.mask(x, m) for part, x, m in self._each(parameters, mask)])

    def with_min_action_prob(self, parameters: Floats, min_action_prob: float) -> Floats:
        """Parameters under which each allowed value of a choice has at least this probability."""
        if min_action_prob <= 0.0:
            return parameters
        each = self._each(parameters)
        return np.hstack([part.with_min_action_prob(x, min_action_prob) for part, x in each])

    def sample(self, parameters: Floats, rng: np.random.Generator) -> tuple[NDArray[Any], Floats]:
        """Actions `[B, C + n]` and their joint log-probability `[B]`."""
        drawn = [part.sample(x, rng) for part, x in self._each(parameters)]
        return self._joined([actions for actions, _ in drawn]), sum(log for _, log in drawn)

    def mode(self, parameters: Floats) -> NDArray[Any]:
        """The most probable choices and the means."""
        return self._joined([part.mode(x) for part, x in self._each(parameters)])

    def named(self, parameters: Floats) -> dict[str, Any]:
        """The probabilities `[B, n]` of each choice; `mean` and `std` of the numbers."""
        each = [part.named(x) for part, x in self._each(parameters)]
        choices, numbers = each[: self._choices], each[self._choices :]
        probabilities = {"probabilities": tuple(named["probabilities"] for named in choices)}
        return probabilities | (numbers[0] if numbers else {})

    def same_mode(self, parameters: Floats, other: Floats) -> NDArray[np.bool_]:
        """Whether all choices and the means are the same."""
        same = [part.same_mode(x, y) for part, x, y in self._each(parameters, other)]
        result: NDArray[np.bool_] = np.logical_and.reduce(same)
        return result

    def log_prob(self, parameters: Floats, actions: NDArray[Any]) -> Floats:
        """Joint log-probability of actions `[B, C + n]`."""
        choices, numbers = np.split(actions, [self._choices], axis=1)
        taken = [*choices.astype(np.int64).T, numbers]
        each = zip(self._each(parameters), taken, strict=False)  # of choices alone, no numbers
        result: Floats = sum(part.log_prob(x, a) for (part, x), a in each)
        return result

    def entropy(self, parameters: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Joint entropy, the sum."""
        result: NDArray[np.float64] = sum(part.entropy(x) for part, x in self._each(parameters))
        return result

    def kl(
        self, parameters: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """Joint KL divergence, the sum."""
        each = self._each(parameters, other)
        result: NDArray[np.float64] = sum(part.kl(x, y) for part, x, y in each)
        return result

    def _each(self, *arrays: NDArray[Any]) -> list[tuple[Any, ...]]:
        """Each part with its columns of the arrays."""
        return [
            (part, *(array[:, columns] for array in arrays))
            for part, columns in zip(self._parts, self._columns, strict=True)
        ]

    def _joined(self, actions: list[NDArray[Any]]) -> NDArray[Any]:
        return np.column_stack(actions).astype(self._dtype, copy=False)
