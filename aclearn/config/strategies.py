"""The strategies that adapt the compression: the list `monitor.strategies`."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from aclearn.config._fields import Group, Whole
from aclearn.config._named import NamedArguments


def _indicator(default: str, words: str) -> Any:
    return Field(
        default=default, min_length=1, description=f"{words}, a figure of the metrics line"
    )


def _seconds(default: float, words: str) -> Any:
    return Field(default=default, gt=0.0, le=86_400.0, description=words)


class StrategyArguments(Group):
    """Common arguments of strategies."""

    dwell_s: float = _seconds(10.0, "least time between two changes by this strategy, in seconds")


class _ReturnsConfig(StrategyArguments):
    back_share: float = Field(
        default=0.5,
        gt=0.0,
        le=1.0,
        description="share of the bound below which the indicator counts as low again",
    )
    back_after_s: float = _seconds(
        30.0,
        "how long the indicator must be low before a less faithful rung is tried "
        "again, in seconds; doubles each time that rung fails again",
    )
    back_after_most_s: float = _seconds(600.0, "bound of that wait, in seconds")


class ThresholdConfig(_ReturnsConfig):
    """An indicator beyond a bound: the next more faithful rung of the ladder."""

    indicator: str = _indicator("compressor_kl_max", "bounded quantity")
    epsilon: float = Field(
        default=14.0, gt=0.0, description="bound ε of the indicator; of a divergence, in nats"
    )


class RewardGapConfig(_ReturnsConfig):
    """A gap between the returns of the two policies: the next more faithful rung."""

    dwell_s: float = _seconds(
        60.0,
        "least time between two changes by this strategy, in seconds; about the "
        "time in which new episodes replace those of the gap's mean",
    )
    delta: float = Field(
        default=10.0, gt=0.0, description="bound δ of the gap, in points of the game"
    )
    back_after_s: float = _seconds(
        300.0,
        "how long the gap must be low before a less faithful rung is tried again, in "
        "seconds; doubles each time that rung fails again",
    )
    back_after_most_s: float = _seconds(3600.0, "bound of that wait, in seconds")


class LinearMixConfig(StrategyArguments):
    """The share α of unrolls that the compressed policy plays falls linearly with a distance."""

    indicator: str = _indicator("compressor_kl_mean", "distance of the two policies")
    zero_at: float = Field(
        default=1.0, gt=0.0, description="distance from which on α is 0; α is 1 at distance 0"
    )
    step: float = Field(default=0.05, gt=0.0, le=1.0, description="least change of α")


class StagedConfig(StrategyArguments):
    """Exploration, improvement and convergence, distinguished by the slope, each with its rung."""

    indicator: str = _indicator("return_slope_per_s", "slope of the return")
    slope: float = Field(
        default=0.01,
        gt=0.0,
        description="slope above which the policy improves, in points of the game per second",
    )
    back_share: float = Field(
        default=0.5, gt=0.0, le=1.0, description="share of it below which the slope counts as low"
    )
    calm_s: float = _seconds(
        120.0, "how long the slope must be low before improvement ends, in seconds"
    )
    exploration: Whole = Field(default=0, ge=0, description="rung before the first improvement")
    improvement: Whole = Field(default=1, ge=0, description="rung while the policy improves")
    convergence: Whole = Field(default=0, ge=0, description="rung after an improvement")


class BanditConfig(StrategyArguments):
    """A sliding-window UCB bandit whose arms are the rungs, and its reward growth per second."""

    indicator: str = _indicator("return_mean_100", "cumulative reward CR")
    every_s: float = _seconds(
        60.0, "time Δ that a play of a rung is measured, in seconds, after dwell_s"
    )
    window: Whole = Field(
        default=40, ge=2, le=1000, description="newest plays that count; older ones are forgotten"
    )
    exploration: float = Field(
        default=0.6, ge=0.0, le=100.0, description="ξ: how much an uncertain rung is preferred"
    )


class UsersStrategyConfig(StrategyArguments):
    """A user's own strategy: its class takes the further keys."""

    model_config = ConfigDict(extra="allow")


STRATEGIES: dict[str, type[StrategyArguments]] = {
    "threshold": ThresholdConfig,
    "reward_gap": RewardGapConfig,
    "linear_mix": LinearMixConfig,
    "staged": StagedConfig,
    "bandit": BanditConfig,
}
"""The models of our strategies by their names."""


class StrategyConfig(NamedArguments):
    """One strategy; in YAML `name` or `name: {arguments}`."""

    table = STRATEGIES
    users = UsersStrategyConfig
