"""Several independent choices, such as MultiDiscrete actions."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions.categorical import Categorical
from aclearn.distributions.distribution import Floats
from aclearn.types import ActionSpec


class MultiCategorical:
    """Distributions of C choices `[B, C]`, by their concatenated logits `[B, P]`."""

    def __init__(self, spec: ActionSpec) -> None:
        self.parameter_count = sum(spec.counts)
        self._columns = [slice(*ends) for ends in pairwise(accumulate(spec.counts, initial=0))]
        self._parts = [Categorical(ActionSpec.discrete(count)) for count in spec.counts]

    def mask(self, parameters: Floats, mask: NDArray[np.bool_] | None) -> Floats:
        """Masked parameters; each choice needs a possible value."""
        if mask is None:
            return parameters
        if mask.shape != parameters.shape:
            raise ValueError(
                f"mask: expected {list(parameters.shape)}, with a possible action in each row; got "
                f"{list(mask.shape)}"
            )
        return np.concatenate([part.mask(x, m) for part, x, m in self._each(parameters, mask)], 1)

    def with_min_action_prob(self, parameters: Floats, min_action_prob: float) -> Floats:
        """Logits under which each allowed value of a choice has at least this probability."""
        if min_action_prob <= 0.0:
            return parameters
        each = self._each(parameters)
        return np.concatenate(
            [part.with_min_action_prob(x, min_action_prob) for part, x in each], 1
        )

    def sample(
        self, parameters: Floats, rng: np.random.Generator
    ) -> tuple[NDArray[np.int32], Floats]:
        """Choices `[B, C]` int32 and their joint log-probability `[B]`."""
        drawn = [part.sample(x, rng) for part, x in self._each(parameters)]
        actions = np.stack([actions for actions, _ in drawn], 1)
        return actions, np.sum([log_prob for _, log_prob in drawn], 0)

    def mode(self, parameters: Floats) -> NDArray[np.int32]:
        """The most probable choices `[B, C]`."""
        return np.stack([part.mode(x) for part, x in self._each(parameters)], 1)

    def named(self, parameters: Floats) -> dict[str, Any]:
        """The probabilities `[B, n]` of each choice."""
        each = (part.named(x)["probabilities"] for part, x in self._each(parameters))
        return {"probabilities": tuple(each)}

    def same_mode(self, parameters: Floats, other: Floats) -> NDArray[np.bool_]:
        """Whether all choices are the same."""
        result: NDArray[np.bool_] = (self.mode(parameters) == self.mode(other)).all(1)
        return result

    def log_prob(self, parameters: Floats, actions: NDArray[Any]) -> Floats:
        """Joint log-probability of choices `[B, C]`."""
        each = zip(self._each(parameters), actions.T, strict=True)
        result: Floats = np.sum([part.log_prob(x, taken) for (part, x), taken in each], 0)
        return result

    def entropy(self, parameters: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Joint entropy, the sum."""
        result: NDArray[np.float64] = np.sum([p.entropy(x) for p, x in self._each(parameters)], 0)
        return result

    def kl(
        self, parameters: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """Joint KL divergence, the sum."""
        each = self._each(parameters, other)
        result: NDArray[np.float64] = np.sum([part.kl(x, y) for part, x, y in each], 0)
        return result

    def _each(self, *arrays: NDArray[Any]) -> list[tuple[Any, ...]]:
        """Each choice's categorical with its columns of the arrays."""
        return [
            (part, *(array[:, columns] for array in arrays))
            for part, columns in zip(self._parts, self._columns, strict=True)
        ]
