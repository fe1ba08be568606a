"""Strategies, which adapt the compression: metrics in, a rung of the ladder or a share out."""

from __future__ import annotations

from aclearn.control.strategies.strategy import Decision, Moment, Strategy

#: Our strategies by their names; the `config_model` of each has its arguments.
STRATEGIES = {
    "threshold": "aclearn.control.strategies.threshold:Threshold",
    "reward_gap": "aclearn.control.strategies.reward_gap:RewardGap",
    "linear_mix": "aclearn.control.strategies.linear_mix:LinearMix",
    "staged": "aclearn.control.strategies.staged:Staged",
    "bandit": "aclearn.control.strategies.bandit:Bandit",
}

__all__ = ["STRATEGIES", "Decision", "Moment", "Strategy"]
