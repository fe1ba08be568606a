"""Observations that actors visited lately, for whoever compresses the policy."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.learning.batch import rebuild_observations
from aclearn.wire import Unroll

#: Unrolls that are kept; each is one message long anyhow, and the newest are what matters.
_UNROLLS_KEPT = 4


class RecentObservations:
    """Keeps the newest unrolls as they came and stacks frames only for what is asked for.

    Not thread-safe: it belongs to the thread that receives unrolls.

    Args:
        frame_stack: S.
        seed: of the choice.
    """

    def __init__(self, *, frame_stack: int, seed: int = 0) -> None:
        self._frame_stack = frame_stack
        self._rng = np.random.default_rng(seed)
        self._unrolls: deque[Unroll] = deque(maxlen=_UNROLLS_KEPT)

    def add(self, unroll: Unroll) -> None:
        """Keep an unroll that was admitted."""
        self._unrolls.append(unroll)

    def sample(self, count: int) -> NDArray[Any] | None:
        """At most `count` observations `[N, *shape]` of one kept unroll; None before the first.

        Only steps that are learned: what an environment said in a failure is none of them.
        """
        if not self._unrolls or count < 1:
            return None
        unroll = self._unrolls[int(self._rng.integers(len(self._unrolls)))]
        t, b = np.nonzero(unroll.valid)
        if len(t) == 0:
            return None
        chosen = np.sort(self._rng.choice(len(t), min(count, len(t)), replace=False))
        frames = unroll.frames
        if frames.ndim < 5:
            return np.ascontiguousarray(frames[t[chosen], b[chosen]])
        channels, height, width = frames.shape[2:]
        shape = (*frames.shape[:2], height, width, channels * self._frame_stack)
        stacked = np.empty(shape, frames.dtype)
        rebuild_observations(unroll, stacked, frame_stack=self._frame_stack)
        return np.ascontiguousarray(np.moveaxis(stacked[t[chosen], b[chosen]], -1, 1))
