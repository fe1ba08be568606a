"""What members have played and learned together since it was last counted by their trainers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aclearn.learning.batched import MemberReports
from aclearn.learning.update_report import APPLIED, ENDS, NEW_STEPS, STEPS

_Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Made:
    """One member's part; the names are those of `TrainerCounters` and of the account.

    Attributes:
        played, learned, refused: agent steps: of all, of updates, and of refused updates.
        versions: batches with an update that was applied.
    """

    played: int = 0
    learned: int = 0
    refused: int = 0
    updates: int = 0
    refused_updates: int = 0
    batches: int = 0
    ended_batches: int = 0
    versions: int = 0


class Tally:
    """Sums over batches, of M members at once: a trainer's own counting takes as long as learning.

    Attributes:
        played: `[M]`, agent steps since `take`.
        refused_in_a_row: `[M]`, updates with a gradient that was not finite.
    """

    def __init__(self, members: int) -> None:
        self._sums: dict[str, _Numbers] = {
            name: np.zeros(members, np.int64) for name in Made.__dataclass_fields__
        }
        self.refused_in_a_row = np.zeros(members, np.int64)

    @property
    def played(self) -> _Numbers:
        """`[M]`, agent steps since `take`."""
        return self._sums["played"]

    def add(self, played: _Numbers, reports: MemberReports) -> None:
        """Count a batch.

        Args:
            played: `[M]`, valid steps of the batch; 0 of members that do not learn.
        """
        sums = self._sums
        sums["played"] += played
        some, ends, changed = (np.zeros(len(played), np.bool_) for _ in range(3))
        for own in reports.own:
            made, applied = own[:, STEPS] > 0, own[:, APPLIED] > 0
            new = own[:, NEW_STEPS].astype(np.int64)
            refused = made & ~applied
            sums["updates"] += applied
            sums["refused_updates"] += refused
            sums["learned"] += np.where(applied, new, 0)
            sums["refused"] += np.where(refused, new, 0)
            self.refused_in_a_row = np.where(applied, 0, self.refused_in_a_row + refused)
            some, ends, changed = some | made, ends | (own[:, ENDS] > 0), changed | applied
        sums["batches"] += some
        sums["ended_batches"] += ends
        sums["versions"] += changed

    def take(self, member: int) -> Made:
        """A member's sums since the last call."""
        made = Made(**{name: int(numbers[member]) for name, numbers in self._sums.items()})
        for numbers in self._sums.values():
            numbers[member] = 0
        return made
