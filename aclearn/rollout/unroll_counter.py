"""The actor's account of its agent steps: produced, sent and dropped."""

from __future__ import annotations

from dataclasses import dataclass, field

from aclearn.rollout.unroll_builder import CollectedUnroll
from aclearn.types import Unroll


@dataclass
class UnrollCounter:
    """Gives each unroll of one actor its place: sequence number and count of agent steps.

    Several groups fill unrolls at the same time; the count is over what was shipped, in order of
    shipping, so that the trainer can tell a gap from a delay.
    """

    actor: str
    sequence: int = 0
    env_steps: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def ship(self, collected: CollectedUnroll) -> tuple[int, Unroll]:
        """The sequence number and the message of the next unroll."""
        before = self.env_steps
        self.env_steps += collected.steps + sum(collected.dropped.values())
        for reason, steps in collected.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + steps
        unroll = Unroll(
            actor=self.actor,
            generation=collected.generation,
            env_steps_before=before,
            env_steps_after=self.env_steps,
            dropped=dict(self.dropped),
            chain=collected.chain,
            **collected.fields,
        )
        self.sequence += 1
        return self.sequence, unroll
