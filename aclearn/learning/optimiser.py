"""Optimisers and learning-rate schedules from their configuration."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from aclearn.config import OptimiserConfig


def make_optimiser(
    parameters: Iterable[nn.Parameter], config: OptimiserConfig
) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba 2015) or RMSProp over float32 parameters."""
    if config.kind == "adam":
        return torch.optim.Adam(
            parameters,
            lr=config.learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.epsilon,
            fused=True,
        )
    return torch.optim.RMSprop(
        parameters,
        lr=config.learning_rate,
        alpha=config.rmsprop_alpha,
        eps=config.epsilon,
        foreach=True,
    )


def learning_rate(config: OptimiserConfig, learned_steps: int) -> float:
    """The learning rate after `learned_steps` agent steps.

    `constant` stays; `linear` falls to 0 at `schedule_steps` and stays there.
    """
    if config.schedule == "constant" or config.schedule_steps is None:
        return config.learning_rate
    left = max(0.0, 1.0 - learned_steps / config.schedule_steps)
    return config.learning_rate * left
