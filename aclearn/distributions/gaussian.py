"""Numbers of Box actions: a diagonal Gaussian, clipped by the environment or squashed by tanh."""

from __future__ import annotations

from math import erf, log, pi, sqrt
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
#: Shares and deviations of the mixture of normal numbers, which is the logistic number of scale ½,
#: whose density is sech²(x) / 2, to 2e-9 of its distribution function (Monahan & Stefanski 1992,
#: table of 8 terms, whose second column is 1 / (2 · deviation)).
LOGISTIC_SHARES = np.array(
    [0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818,
     0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354]
)  # fmt: skip
LOGISTIC_STDS = 0.5 / np.array(
    [1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391,
     0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306]
)  # fmt: skip
_erf = np.vectorize(erf, otypes=[np.float64])


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

    def named(self, parameters: Floats) -> dict[str, Any]:
        """The means and the standard deviations `[B, n]` of samples."""
        means, log_stds = _split(parameters)
        return {"mean": means, "std": np.exp(log_stds)}

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
        """Differential entropy `[B]`; with tanh its error is below 1e-7 a number."""
        means, log_stds = _split(parameters.astype(np.float64))
        each = log_stds + HALF_LOG_2PI + 0.5
        if self._squash:
            each += _mean_log_tanh_slope(means, np.exp(log_stds))
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


def _mean_log_tanh_slope(means: NDArray[Any], stds: NDArray[Any]) -> NDArray[np.float64]:
    """E log(1 − tanh²(u)) of u ~ N(mean, std²), element by element.

    log(1 − tanh²(u)) is 2 log 2 − 2 E|u − x| of a logistic number x of scale ½, since both have the
    second derivative −2 sech²(u) and the value 0 at 0. Where x is a mixture of normal numbers, so
    is u − x, and E|y| of y ~ N(m, t²) is t √(2/π) exp(−m² / 2t²) + m erf(m / (t √2)).
    """
    m, t = means[..., None], np.hypot(stds[..., None], LOGISTIC_STDS)
    away = m / (t * sqrt(2.0))
    sizes = t * sqrt(2.0 / pi) * np.exp(-np.square(away)) + m * _erf(away)
    result: NDArray[np.float64] = 2.0 * (log(2.0) - (LOGISTIC_SHARES * sizes).sum(-1))
    return result


def _split(parameters: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Means and log standard deviations `[B, n]`."""
    means, log_stds = np.split(parameters, 2, axis=1)
    return means, np.clip(log_stds, *LOG_STD_RANGE)
