"""Running mean and variance of samples that arrive in parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Added to a variance, so that a number that never changes is divided by 1e-4 and not by 0.
_EPSILON = 1e-8


@dataclass(frozen=True, eq=False)
class Moments:
    """Number, mean and variance of samples, component by component, in float64.

    Attributes:
        count: weight of the samples; their number, where none was discounted.
        mean: 0 without samples.
        variance: of the population, Σ (x − mean)² / count; 1 without samples.
    """

    count: float
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> Moments:
        """Those of no samples, with which nothing changes by normalisation."""
        return cls(0.0, np.zeros(shape), np.ones(shape))

    @classmethod
    def of(cls, samples: Tensor) -> Moments:
        """Those of finite `samples` `[N, *shape]`."""
        if not len(samples):
            return cls.none(tuple(samples.shape[1:]))
        wide = samples.detach().to(torch.float64)
        variance, mean = torch.var_mean(wide, 0, correction=0)
        return cls(float(len(wide)), mean.cpu().numpy(), variance.cpu().numpy())

    def joined(self, other: Moments, *, kept: float = 1.0) -> Moments:
        """Those of both sets of samples (Chan, Golub & LeVeque 1979).

        Args:
            other: of the same shape; returned unchanged are `self` without samples in it, and
                `self` where it is not finite.
            kept: share of its weight that `self` keeps; below 1 old samples are forgotten.
        """
        finite = np.isfinite(other.mean).all() and np.isfinite(other.variance).all()
        if other.count == 0.0 or not finite:
            return self
        mine = kept * self.count
        count = mine + other.count
        share = other.count / count
        away = other.mean - self.mean
        between = away**2 * share * (mine / count)
        variance = self.variance * (mine / count) + other.variance * share + between
        return Moments(count, self.mean + away * share, variance)

    @property
    def std(self) -> NDArray[np.float64]:
        """√(variance + 1e-8)."""
        return np.sqrt(self.variance + _EPSILON)
