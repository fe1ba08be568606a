"""Advantages of one batch with mean 0 and standard deviation 1."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from aclearn.learning.moments import RESOLUTION, Moments, at_least
from correctors import Correction


def standardised(correction: Correction, valid: Tensor) -> Correction:
    """`correction` with advantages less their mean, and the scale 1 / their standard deviation.

    Over a whole batch, not over each minibatch as some do: then all its updates, and minibatches of
    any size, weigh a step alike. Nothing waits for the device. Deviations below what float32 can
    resolve of the targets, whose differences to values advantages are, count as rounding.

    Args:
        valid: `[T, B]` bool, the steps that count, as far as the correction keeps them.
    """
    learned = valid if correction.kept is None else valid & correction.kept
    # in double precision equal advantages have no deviation
    advantages = correction.advantages.double()
    counted = Moments.masked(advantages, learned)
    targets = Moments.masked(correction.targets, learned)
    size = (targets.variance + targets.mean.square()).sqrt()
    scale = 1.0 / at_least(counted.variance.sqrt(), RESOLUTION * size)
    return replace(
        correction, advantages=(advantages - counted.mean).float(), advantage_scale=scale
    )
