"""The accounts of a run's policies, whose unrolls come together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aclearn.learning.account import StepAccount
from aclearn.types import Unroll


class Accounts:
    """The account of each learning policy, and what they decide together. Thread-safe as these.

    The unrolls of one number come from the same steps of the same environments. They are all put
    in flight or all dropped, so that no policy waits for steps that another one has lost.
    """

    def __init__(self, by_policy: Mapping[str, StepAccount]) -> None:
        self.by_policy = by_policy

    @property
    def reached(self) -> str | None:
        """The bound that the run has reached; None before."""
        return next((each.reached for each in self._all if each.reached is not None), None)

    @property
    def last(self) -> bool:
        """Whether the next unrolls of each actor reach `max_env_steps`."""
        steps = sum(each.env_steps + each.elsewhere + each.coming for each in self._all)
        return steps >= self._all[0].max_env_steps

    def admit(
        self, incarnation: str, number: int, unrolls: Mapping[str, Unroll], reason: str | None
    ) -> str | None:
        """Put the steps of the unrolls of one number in flight, or drop or refuse them.

        Args:
            reason: why they are not to be learned; None if they may be.

        Returns:
            As `StepAccount.admit`; the first refusal is that of all.
        """
        reason = self.reached or reason
        steps = {policy: int(np.count_nonzero(each.valid)) for policy, each in unrolls.items()}
        refusals = {
            policy: self.by_policy[policy].admit(
                incarnation,
                number,
                unroll.env_steps_before,
                unroll.env_steps_after,
                unroll.dropped,
                steps[policy],
                reason,
            )
            for policy, unroll in unrolls.items()
        }
        self.compare()
        refusal = next((each for each in refusals.values() if each is not None), None)
        if refusal is not None:
            for policy, own in refusals.items():
                if own is None:
                    self.by_policy[policy].dropped(refusal, steps[policy])
        return refusal

    def compare(self) -> None:
        """Let each account know the others' steps: the bound is one of their sum."""
        steps = [each.env_steps + each.elsewhere for each in self._all]
        for each, own in zip(self._all, steps, strict=True):
            each.hear_beside(sum(steps) - own)

    def dropped(self, reason: str, unrolls: Mapping[str, Unroll]) -> None:
        """Drop the steps of unrolls in flight."""
        for policy, unroll in unrolls.items():
            self.by_policy[policy].dropped(reason, int(np.count_nonzero(unroll.valid)))

    @property
    def _all(self) -> list[StepAccount]:
        return list(self.by_policy.values())
