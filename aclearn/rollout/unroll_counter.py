"""The actor's account of its agent steps: produced, sent and dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class UnrollCounter:
    """Counts one actor's unrolls and their agent steps.

    Several groups fill unrolls in parallel; they are counted in the order of sending, so that the
    trainer can tell a gap from a delay.

    Attributes:
        sequence: number of the newest unroll.
        env_steps: agent steps in all of them.
        dropped: reason → number of invalid steps among them.
    """

    sequence: int = 0
    env_steps: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def ship(self, steps: int, dropped: Mapping[str, int]) -> None:
        """Count one more unroll: its valid steps, and the others by reason."""
        self.sequence += 1
        self.env_steps += steps + sum(dropped.values())
        for reason, count in dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
