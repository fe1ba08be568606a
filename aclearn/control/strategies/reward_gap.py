"""A gap between the two policies' returns moves to a lower sparsity (AcceRL, figure 7)."""

from __future__ import annotations

from aclearn.control.strategies.strategy import Moment
from aclearn.control.strategies.threshold import Threshold
from aclearn.metrics.names import COMPRESSED


class RewardGap(Threshold):
    """A threshold of the reward gap, for a ladder of prunings, such as 0.5, 0.2, none.

    Args:
        delta: bound of the gap, in points of the game.
        back: `back_share`, `back_after_s` and `back_after_most_s` of `Threshold`.
    """

    def __init__(self, delta: float = 10.0, **back: float) -> None:
        super().__init__("reward_gap", delta, **back)

    def value(self, moment: Moment) -> float | None:
        """The gap: 0 on a rung that does not compress, where the figure is that of the past.

        None while a more faithful policy replaces the rung's, for instance by `compressor.max_kl`.
        """
        if moment.number(COMPRESSED) == 0.0:
            return None
        return 0.0 if moment.number("compressed_share") == 0.0 else super().value(moment)
