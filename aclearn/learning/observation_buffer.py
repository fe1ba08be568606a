"""Recently visited observations, for the compressor."""

from __future__ import annotations

from collections import deque

import numpy as np

from aclearn.learning.frame_stack import chosen_observations
from aclearn.types import ObservationSpec, Unroll, Visited

#: Kept unrolls. Consecutive observations are alike, so a few of many unrolls vary more.
_UNROLLS_KEPT = 8


class RecentObservations:
    """Keeps the newest unrolls unchanged and stacks frames only of the sampled observations.

    Not thread-safe: it belongs to the thread that receives unrolls.
    """

    def __init__(self, spec: ObservationSpec, *, seed: int = 0) -> None:
        self._spec = spec
        self._rng = np.random.default_rng(seed)
        self._unrolls: deque[Unroll] = deque(maxlen=_UNROLLS_KEPT)

    def add(self, unroll: Unroll) -> None:
        """Keep an admitted unroll."""
        self._unrolls.append(unroll)

    def sample(self, count: int) -> Visited:
        """At most `count` observations of valid steps, with their masks."""
        places = [np.nonzero(unroll.valid) for unroll in self._unrolls]
        ends = np.cumsum([0] + [len(t) for t, _ in places])
        if count < 1 or ends[-1] == 0:
            return Visited()
        chosen = np.sort(self._rng.choice(ends[-1], min(count, ends[-1]), replace=False))
        drawn = []
        for unroll, (t, b), start, end in zip(self._unrolls, places, ends, ends[1:], strict=False):
            here = chosen[(chosen >= start) & (chosen < end)] - start
            at = t[here], b[here]
            observations = {
                name: chosen_observations(unroll, name, leaf, *at)
                for name, leaf in self._spec.items()
            }
            drawn.append(Visited(observations, None if unroll.masks is None else unroll.masks[at]))
        return Visited.joined(drawn)
