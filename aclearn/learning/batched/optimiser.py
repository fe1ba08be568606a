"""A step of Adam or RMSProp for every member, each with its own learning rate."""

from __future__ import annotations

import torch
from torch import Tensor

from aclearn.config import OptimiserConfig
from aclearn.learning.batched.rows import StateRows
from aclearn.learning.decisions import surely


def clip_rows(gradients: Tensor, limit: float) -> Tensor:
    """Scale each row of `[M, P]` down to the norm `limit`, 0: none; `[M]` norms before."""
    norms: Tensor = torch.linalg.vector_norm(gradients, dim=1)
    if limit > 0.0:
        gradients *= (limit / (norms + 1e-6)).clamp(max=1.0).unsqueeze(1)
    return norms


@torch.no_grad()
def step_rows(
    rows: StateRows, config: OptimiserConfig, gradients: Tensor, *, rates: Tensor, applied: Tensor
) -> None:
    """As `step` of each member's optimiser, which this replaces.

    Args:
        gradients: `[M, P]`, clipped.
        rates: `[M]` float32, learning rates.
        applied: `[M]` bool; other rows stay as they were.
    """
    changed = [rows.learned.flat, *rows.moments.values()]
    changed += [] if rows.steps is None else [rows.steps]
    everywhere = surely(applied.all())
    before = [] if everywhere else [tensor.clone() for tensor in changed]
    if config.kind == "adam":
        _adam(rows, config, gradients, rates.unsqueeze(1))
    else:
        _rmsprop(rows, config, gradients, rates.unsqueeze(1))
    for tensor, old in zip(changed, before, strict=not everywhere):
        mask = applied.view(-1, *(1,) * (tensor.ndim - 1))
        torch.where(mask, tensor, old, out=tensor)


def _adam(rows: StateRows, config: OptimiserConfig, gradients: Tensor, rates: Tensor) -> None:
    assert rows.steps is not None
    first, second = rows.moments["exp_avg"], rows.moments["exp_avg_sq"]
    rows.steps += 1
    steps = rows.steps.double().unsqueeze(1)
    first.lerp_(gradients, 1.0 - config.adam_beta1)
    second.mul_(config.adam_beta2).addcmul_(gradients, gradients, value=1.0 - config.adam_beta2)
    scale = (1.0 - config.adam_beta2**steps).sqrt().float()
    sizes = (rates / (1.0 - config.adam_beta1**steps)).float()
    denominators = second.sqrt().div_(scale).add_(config.epsilon)
    rows.learned.flat.addcdiv_(first * -sizes, denominators)


def _rmsprop(rows: StateRows, config: OptimiserConfig, gradients: Tensor, rates: Tensor) -> None:
    squares = rows.moments["square_avg"]
    squares.mul_(config.rmsprop_alpha)
    squares.addcmul_(gradients, gradients, value=1.0 - config.rmsprop_alpha)
    if config.kind == "rmsprop_tf":
        roots = (squares + config.epsilon).sqrt_()
    else:
        roots = squares.sqrt().add_(config.epsilon)
    rows.learned.flat.addcdiv_(gradients * -rates, roots)
