"""A gap between the two policies' returns moves to a lower sparsity (AcceRL, figure 7)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from aclearn.control.strategies.strategy import Moment
from aclearn.control.strategies.threshold import ReturnsConfig, Threshold
from aclearn.metrics.names import COMPRESSED

#: Share of the unrolls that actors play with the compressed policy, where they mix two.
_SHARE = "actor_compressed_share"


class RewardGapConfig(ReturnsConfig):
    """A gap between the returns of the two policies: the next more faithful rung."""

    dwell_s: float = Field(
        default=60.0,
        gt=0.0,
        le=86_400.0,
        description="least time between two changes by this strategy, in seconds; about the "
        "time in which new episodes replace those of the gap's mean",
    )
    delta: float = Field(
        default=10.0, gt=0.0, description="bound δ of the gap, in points of the game"
    )
    back_after_s: float = Field(
        default=300.0,
        gt=0.0,
        le=86_400.0,
        description="how long the gap must be low before a less faithful rung is tried again, in "
        "seconds; doubles each time that rung fails again",
    )
    back_after_most_s: float = Field(
        default=3600.0,
        gt=0.0,
        le=86_400.0,
        description="bound of that wait, in seconds",
    )


class RewardGap(Threshold):
    """A threshold of the reward gap, for a ladder of prunings, such as 0.5, 0.2, none."""

    config_model = RewardGapConfig

    def __init__(self, **arguments: Any) -> None:
        config = RewardGapConfig(**arguments)
        back = config.model_dump(exclude={"delta"})
        super().__init__(indicator="reward_gap", epsilon=config.delta, **back)

    def value(self, moment: Moment) -> float | None:
        """The gap: 0 on a rung that does not compress, where the figure is that of the past.

        None while a more faithful policy replaces the rung's, for instance by `compressor.max_kl`,
        or while the policy itself plays all unrolls (`linear_mix`).
        """
        if moment.number(COMPRESSED) == 0.0 or moment.number(_SHARE) == 0.0:
            return None
        return 0.0 if moment.number("compressed_share") == 0.0 else super().value(moment)
