"""The actor's account of its agent steps: produced, sent and dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class UnrollCounter:
    """What one actor has shipped: unrolls, and agent steps in them.

    Several groups fill unrolls at the same time; the count is over what was shipped, in order of
    shipping, so that the trainer can tell a gap from a delay.

    Attributes:
        sequence: number of the newest unroll.
        env_steps: agent steps in all of them.
        dropped: reason → those of them that are not valid.
    """

    sequence: int = 0
    env_steps: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def ship(self, steps: int, dropped: Mapping[str, int]) -> None:
        """Count one more unroll, with so many steps to learn from and so many others by reason."""
        self.sequence += 1
        self.env_steps += steps + sum(dropped.values())
        for reason, count in dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
