"""Random numbers of many environments at once, each a function of its seed and its episode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Steele, Lea and Flood 2014: SplitMix64's step and its mixing function.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def uniforms(
    seeds: NDArray[np.uint64], episodes: NDArray[np.uint64], count: int
) -> NDArray[np.float64]:
    """Numbers in [0, 1), [B, count]; row b depends on `seeds[b]` and `episodes[b]` alone."""
    key = _mixed(_mixed(seeds + _STEP) + episodes * _STEP)
    numbers = _mixed(key[:, None] + np.arange(1, count + 1, dtype=np.uint64) * _STEP)
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
