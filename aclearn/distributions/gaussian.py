"""Numbers of Box actions: a diagonal Gaussian, clipped by the environment or squashed by tanh."""

from __future__ import annotations

from math import log, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions.distribution import Floats
from aclearn.types import ActionSpec

#: Parameters are clipped to this range: beyond it a density or a distance overflows float32.
LOG_STD_RANGE = (-10.0, 4.0)
HALF_LOG_2PI = 0.5 * log(2 * pi)
#: Means that differ by less than this share of the standard deviation count as the same action.
_SAME_WITHIN_STDS = 0.1
#: Nodes and weights of Gauss–Hermite quadrature, for E f(u) of u ~ N(0, 1).
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Gaussian:
    """Distributions of n numbers, by their means and then their log standard deviations `[B, 2n]`.

    Samples are as drawn, before clipping or tanh. Without `spec.squash` all log-probabilities are
    densities of samples u. With it they are densities of a = tanh(u), by the change of variables
    log p(a) = log p(u) − Σ log(1 − tanh²(u)).
    """

    def __init__(self, spec: ActionSpec) -> None:
        self.parameter_count = 2 * spec.numbers
        self._squash = spec.squash

    def mask(self, parameters: Floats, mask: NDArray[np.bool_] | None) -> Floats:
        """Unchanged: Box actions have no mask; raises ValueError if there is one."""
        if mask is not None and mask.shape[-1]:
            raise ValueError(f"mask: Box actions have none, got {list(mask.shape)}")
        return parameters

    def with_min_action_prob(self, parameters: Floats, min_action_prob: float) -> Floats:
        """Unchanged: every action is possible."""
        return parameters

    def sample(self, parameters: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Numbers `[B, n]` float32 and their log-density `[B]`."""
        means, log_stds = _split(parameters)
        actions = means + np.exp(log_stds) * rng.standard_normal(means.shape, dtype=np.float32)
        return actions, self.log_prob(parameters, actions)

    def mode(self, parameters: Floats) -> Floats:
        """The means `[B, n]`; with tanh they are the medians."""
        return _split(parameters)[0]

    def same_mode(self, parameters: Floats, other: Floats) -> NDArray[np.bool_]:
        """Whether the means differ by less than a tenth of the standard deviation."""
        (mine, log_stds), (others, _) = _split(parameters), _split(other)
        distance = np.abs(mine - others) * np.exp(-log_stds)
        result: NDArray[np.bool_] = (distance <= _SAME_WITHIN_STDS).all(1)
        return result

    def log_prob(self, parameters: Floats, actions: NDArray[Any]) -> Floats:
        """Log-densities `[B]` of samples `[B, n]`."""
        means, log_stds = _split(parameters)
        distance = (actions - means) * np.exp(-log_stds)
        each = -0.5 * np.square(distance) - log_stds - np.float32(HALF_LOG_2PI)
        if self._squash:
            each -= log_tanh_slope(actions)
        result: Floats = each.sum(1)
        return result

    def entropy(self, parameters: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Differential entropy `[B]`; with tanh by quadrature (error about 0.01 a number)."""
        means, log_stds = _split(parameters.astype(np.float64))
        each = log_stds + HALF_LOG_2PI + 0.5
        if self._squash:
            at = means[..., None] + np.exp(log_stds)[..., None] * NODES
            each += (WEIGHTS * log_tanh_slope(at)).sum(-1)
        result: NDArray[np.float64] = each.sum(1)
        return result

    def kl(
        self, parameters: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """KL(p ‖ q) `[B]`; tanh does not change it, since it is one to one."""
        (p, log_p), (q, log_q) = (_split(x.astype(np.float64)) for x in (parameters, other))
        square = np.square((p - q) * np.exp(-log_q))
        each = log_q - log_p + 0.5 * (np.exp(2 * (log_p - log_q)) + square - 1.0)
        result: NDArray[np.float64] = each.sum(1).clip(min=0.0)
        return result


def log_tanh_slope(u: NDArray[Any]) -> NDArray[Any]:
    """log(1 − tanh²(u)), in a form that does not round to log 0 from u = 10 on."""
    size = np.abs(u)
    result: NDArray[Any] = 2.0 * (np.float32(log(2)) - size - np.log1p(np.exp(-2.0 * size)))
    return result


def _split(parameters: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Means and log standard deviations `[B, n]`."""
    means, log_stds = np.split(parameters, 2, axis=1)
    return means, np.clip(log_stds, *LOG_STD_RANGE)
