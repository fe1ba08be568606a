"""A distribution from outside the packages: action 1 or 0, by the log-odds `[B, 1]` of 1."""

from __future__ import annotations

import numpy as np

from aclearn.distributions.categorical import MASKED, Categorical
from aclearn.types import ActionSpec

_TWO = Categorical(ActionSpec.discrete(2))


def _logits(parameters):
    return np.concatenate([np.zeros_like(parameters), parameters], 1)


class Bernoulli:
    def __init__(self, spec):
        self.parameter_count = 1

    def mask(self, parameters, mask):
        if mask is None:
            return parameters
        possible = np.where(mask[:, 1:], parameters, np.float32(MASKED))
        return np.where(mask[:, :1], possible, np.float32(-MASKED))

    def with_min_action_prob(self, parameters, min_action_prob):
        logits = _TWO.with_min_action_prob(_logits(parameters), min_action_prob)
        # of a mask only one is left
        forced = np.abs(parameters) >= -np.float32(MASKED)
        return np.where(forced, parameters, logits[:, 1:] - logits[:, :1])

    def sample(self, parameters, rng):
        return _TWO.sample(_logits(parameters), rng)

    def mode(self, parameters):
        return _TWO.mode(_logits(parameters))

    def same_mode(self, parameters, other):
        return self.mode(parameters) == self.mode(other)

    def log_prob(self, parameters, actions):
        return _TWO.log_prob(_logits(parameters), actions)

    def entropy(self, parameters):
        return _TWO.entropy(_logits(parameters))

    def kl(self, parameters, other):
        return _TWO.kl(_logits(parameters), _logits(other))
