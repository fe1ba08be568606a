"""Distributions of actions: sample, mode, log-probability."""

from __future__ import annotations

from aclearn.distributions.categorical import (
    greedy_actions,
    log_probs_of,
    log_softmax,
    sample_actions,
)

__all__ = [
    "greedy_actions",
    "log_probs_of",
    "log_softmax",
    "sample_actions",
]
