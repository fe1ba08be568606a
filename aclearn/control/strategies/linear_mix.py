"""The share of unrolls that the compressed policy plays falls with its distance (AcceRL)."""

from __future__ import annotations

from typing import ClassVar

from aclearn.control.directives import SetChain, SetMix
from aclearn.control.strategies.strategy import Decision, Moment, Strategy


class LinearMix(Strategy):
    """The compressed policy plays an unroll with probability α = 1 − indicator / `zero_at`.

    α is at least 0. Changes of less than `step` are skipped, except those to 0 and to 1.

    Args:
        indicator: metric that is 0 if the two policies are equal.
        zero_at: distance from which on the uncompressed policy plays alone.
        step: least change of α.
    """

    sets: ClassVar[type[SetChain] | type[SetMix]] = SetMix
    start: ClassVar[float] = 1.0

    def __init__(
        self, indicator: str = "compressor_kl_mean", zero_at: float = 1.0, *, step: float = 0.05
    ) -> None:
        self._indicator, self._zero_at, self._step = indicator, zero_at, step

    @property
    def indicators(self) -> tuple[str, ...]:
        """The distance."""
        return (self._indicator,)

    def decide(self, moment: Moment) -> Decision | None:
        """α of the newest distance."""
        distance = moment.number(self._indicator)
        if distance is None:
            return None
        # rounded, so that it comes to 1 and no actor keeps a second policy for nothing
        share = round(min(max(1.0 - distance / self._zero_at, 0.0), 1.0), 3)
        change = abs(share - moment.setting)
        if change < self._step and not (change and share in (0.0, 1.0)):
            return None
        return Decision(share, {self._indicator: distance, "zero_at": self._zero_at})
