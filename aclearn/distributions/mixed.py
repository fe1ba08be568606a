"""Independent choices and numbers, such as Dict actions with a Box."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions.distribution import Floats
from aclearn.distributions.gaussian import Gaussian
from aclearn.distributions.multi_categorical import MultiCategorical
from aclearn.types import ActionSpec


class Mixed:
    """Distributions of C choices and n numbers `[B, C + n]` float32, by logits, then 2n numbers."""

    def __init__(self, spec: ActionSpec) -> None:
        self._choices, self._numbers = MultiCategorical(spec), Gaussian(spec)
        self._choice_count = len(spec.counts)
        self._logits = self._choices.parameter_count
        self.parameter_count = self._logits + self._numbers.parameter_count

    def mask(self, parameters: Floats, mask: NDArray[np.bool_] | None) -> Floats:
        """Parameters whose choices are masked."""
        logits, rest = self._split(parameters)
        return parameters if mask is None else np.hstack([self._choices.mask(logits, mask), rest])

    def with_min_action_prob(self, parameters: Floats, min_action_prob: float) -> Floats:
        """Parameters whose choices have at least this probability each."""
        logits, rest = self._split(parameters)
        return np.hstack([self._choices.with_min_action_prob(logits, min_action_prob), rest])

    def sample(self, parameters: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Actions `[B, C + n]` and their joint log-probability `[B]`."""
        logits, rest = self._split(parameters)
        choices, log_prob = self._choices.sample(logits, rng)
        numbers, log_density = self._numbers.sample(rest, rng)
        return np.hstack([choices.astype(np.float32), numbers]), log_prob + log_density

    def mode(self, parameters: Floats) -> Floats:
        """The most probable choices and the means."""
        logits, rest = self._split(parameters)
        choices = self._choices.mode(logits).astype(np.float32)
        return np.hstack([choices, self._numbers.mode(rest)])

    def named(self, parameters: Floats) -> dict[str, Any]:
        """Those of the choices and of the numbers."""
        logits, rest = self._split(parameters)
        return self._choices.named(logits) | self._numbers.named(rest)

    def same_mode(self, parameters: Floats, other: Floats) -> NDArray[np.bool_]:
        """Whether both choices and means are the same."""
        (logits, rest), (others, other_rest) = self._split(parameters), self._split(other)
        return self._choices.same_mode(logits, others) & self._numbers.same_mode(rest, other_rest)

    def log_prob(self, parameters: Floats, actions: NDArray[Any]) -> Floats:
        """Joint log-probability of actions `[B, C + n]`."""
        logits, rest = self._split(parameters)
        choices, numbers = np.split(actions, [self._choice_count], axis=1)
        of_choices = self._choices.log_prob(logits, choices.astype(np.int64))
        result: Floats = of_choices + self._numbers.log_prob(rest, numbers)
        return result

    def entropy(self, parameters: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Joint entropy, the sum."""
        logits, rest = self._split(parameters)
        return self._choices.entropy(logits) + self._numbers.entropy(rest)

    def kl(
        self, parameters: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """Joint KL divergence, the sum."""
        (logits, rest), (others, other_rest) = self._split(parameters), self._split(other)
        return self._choices.kl(logits, others) + self._numbers.kl(rest, other_rest)

    def _split(self, parameters: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        logits, rest = np.split(parameters, [self._logits], axis=1)
        return logits, rest
