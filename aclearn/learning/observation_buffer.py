"""Recently visited observations, for the compressor."""

from __future__ import annotations

from collections import deque

import numpy as np

from aclearn.learning.frame_stack import chosen_observations
from aclearn.types import ObservationSpec, Unroll, Visited

#: Least unrolls that are kept. Consecutive observations are alike: a few of many unrolls vary more.
_UNROLLS_KEPT = 8
#: Most observations of a sample: about 14 MB of 84 × 84 × 4 images.
MOST_OBSERVATIONS = 512
#: Least steps that are kept, where there have been as many: of short unrolls, eight have few.
_STEPS_KEPT = 2 * MOST_OBSERVATIONS


class RecentObservations:
    """Keeps the newest unrolls unchanged and stacks frames only of the sampled observations.

    Not thread-safe: it belongs to the thread that receives unrolls.
    """

    def __init__(self, spec: ObservationSpec, *, seed: int = 0) -> None:
        self._spec = spec
        self._rng = np.random.default_rng(seed)
        self._unrolls: deque[Unroll] = deque()
        self._steps = 0

    def add(self, unroll: Unroll) -> None:
        """Keep an admitted unroll."""
        self._unrolls.append(unroll)
        self._steps += unroll.valid.size
        while (
            len(self._unrolls) > _UNROLLS_KEPT
            and self._steps - self._unrolls[0].valid.size >= _STEPS_KEPT
        ):
            self._steps -= self._unrolls.popleft().valid.size

    def sample(self, count: int) -> Visited:
        """At most `count` observations of valid steps, and `MOST_OBSERVATIONS`, with their masks.

        Of unrolls with a state, whole ones of some environments, with the state before; one at
        least. Of longer ones than `MOST_OBSERVATIONS` these are the first steps.
        """
        count = min(count, MOST_OBSERVATIONS)
        if self._unrolls and self._unrolls[-1].state:
            return self._sequences(count)
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

    def _sequences(self, count: int) -> Visited:
        length = min(len(self._unrolls[-1].valid), MOST_OBSERVATIONS)
        whole = [
            (unroll, b)
            for unroll in self._unrolls
            for b in np.flatnonzero(unroll.valid[:length].any(0))
        ]
        if count < 1 or not whole:
            return Visited()
        most = min(len(whole), max(1, count // length))
        drawn = []
        for i in np.sort(self._rng.choice(len(whole), most, replace=False)):
            unroll, b = whole[i]
            at = np.arange(length), np.full(length, b)
            drawn.append(
                Visited(
                    {
                        name: chosen_observations(unroll, name, leaf, *at)
                        for name, leaf in self._spec.items()
                    },
                    None if unroll.masks is None else unroll.masks[at],
                    length,
                    unroll.valid[:length, b],
                    tuple(part[b : b + 1] for part in unroll.state),
                )
            )
        return Visited.joined(drawn)
