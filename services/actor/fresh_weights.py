"""On-policy data: an unroll begins with weights that are newer than the one before."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from aclearn.types import PolicyVersion

#: Longest wait for newer weights: without an update, as after one that was refused, the actor goes
#: on with the old ones.
_LONGEST_WAIT_S = 30.0


@dataclass
class _Steps:
    """A group's steps by the version with which its newest unroll began."""

    at: PolicyVersion
    count: int = 0
    unrolls: int = 1
    waits_since: float | None = None


def unrolls_of_a_version(batch: int, *, actor: int, actors: int, ranks: int) -> int:
    """Unrolls that an actor plays with one version: with those of its rank's others a batch.

    Args:
        batch: unrolls in it.
        actor: its number; every `ranks`-th one belongs to its rank.
    """
    return -(-batch // len(range(actor % ranks, actors, ranks)))


class FreshWeights:
    """Decides whether a group of environments may act with the weights that there are.

    Args:
        unrolls: that a group may begin with one version.
    """

    def __init__(
        self, *, unroll_length: int, unrolls: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._length, self._unrolls, self._clock = unroll_length, unrolls, clock
        self._steps: dict[int, _Steps] = {}

    def allow(self, group: int, at: PolicyVersion) -> bool:
        """Whether the group may take its next step with version `at`; then it counts as taken."""
        steps = self._steps.setdefault(group, _Steps(at))
        if steps.count == self._length:
            if at != steps.at:
                steps = self._steps[group] = _Steps(at)
            elif steps.unrolls < self._unrolls:
                steps.unrolls, steps.count = steps.unrolls + 1, 0
            elif self._waited_long(steps):
                steps = self._steps[group] = _Steps(at)
            else:
                return False
        steps.count += 1
        return True

    def _waited_long(self, steps: _Steps) -> bool:
        now = self._clock()
        if steps.waits_since is None:
            steps.waits_since = now
        return now - steps.waits_since >= _LONGEST_WAIT_S
