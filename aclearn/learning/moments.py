"""Running mean and variance of samples that arrive in parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from aclearn.learning.decisions import readable

#: Least deviation, as a share of the mean's size. float32 rounds numbers to 2⁻²⁴ of their size, so
#: that a smaller deviation is that of rounding.
RESOLUTION = 2.0**-20
_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, eq=False)
class Moments:
    """Number, mean and variance of samples, component by component, float64 on their device.

    Attributes:
        count: `[]`, weight of the samples; their number, where none was discounted.
        mean: 0 without samples.
        variance: of the population, Σ (x − mean)² / count; 1 without samples.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def none(cls, shape: tuple[int, ...], device: torch.device | None = None) -> Moments:
        """Those of no samples, with which nothing changes by normalisation."""
        ones = torch.ones(shape, dtype=torch.float64, device=device)
        return cls(ones.new_zeros(()), torch.zeros_like(ones), ones)

    @classmethod
    def of(cls, samples: Tensor) -> Moments:
        """Those of finite `samples` `[N, *shape]`."""
        if not len(samples):
            return cls.none(tuple(samples.shape[1:]), samples.device)
        wide = samples.detach().double()
        variance, mean = torch.var_mean(wide, 0, correction=0)
        return cls(mean.new_full((), len(wide)), mean, variance)

    @classmethod
    def of_valid(cls, samples: Tensor, valid: Tensor) -> Moments:
        """Those of `samples` `[T, B, *shape]` where `valid` `[T, B]`, without a wait for a GPU."""
        return cls.of(samples[valid]) if readable(valid.device) else cls.masked(samples, valid)

    @classmethod
    def masked(cls, samples: Tensor, valid: Tensor) -> Moments:
        """Those of `samples` `[T, B, *shape]` where `valid` `[T, B]`; in memory of a fixed size.

        Without a wait for the device, which `samples[valid]` needs; other digits may round.
        """
        wide = samples.detach().double()
        other = ~valid.view(*valid.shape, *[1] * (wide.ndim - valid.ndim))
        count = valid.sum().double()
        divisor, over = count.clamp(min=1.0), (0, 1)
        mean = wide.masked_fill(other, 0.0).sum(over) / divisor
        variance = (wide - mean).square().masked_fill(other, 0.0).sum(over) / divisor
        return cls(count, mean, variance)

    def joined(self, other: Moments, *, kept: float = 1.0) -> Moments:
        """Those of both sets of samples (Chan, Golub & LeVeque 1979).

        Args:
            other: of the same shape; without samples in it, or where it is not finite, the
                result is that of `self` alone, unchanged.
            kept: share of its weight that `self` keeps; below 1 old samples are forgotten.
        """
        usable = other.mean.isfinite().all() & other.variance.isfinite().all() & (other.count > 0)
        mine = kept * self.count
        count = mine + other.count
        share = other.count / count
        away = other.mean - self.mean
        between = away.square() * share * (mine / count)
        variance = self.variance * (mine / count) + other.variance * share + between
        return Moments(
            torch.where(usable, count, self.count),
            torch.where(usable, self.mean + away * share, self.mean),
            torch.where(usable, variance, self.variance),
        )

    @property
    def std(self) -> Tensor:
        """√variance, at least `RESOLUTION` of the mean and float32's smallest normal number.

        So what is divided by it has the same digits whatever its unit is.
        """
        return at_least(self.variance.sqrt(), RESOLUTION * self.mean.abs())


def at_least(deviation: Tensor, floor: Tensor) -> Tensor:
    """The larger of both, and of the smallest number by which float32 can divide."""
    return torch.maximum(deviation, floor).clamp(min=_TINY)
