"""Optimisers and learning-rate schedules from their configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from aclearn.config import OptimiserConfig


def make_optimiser(
    parameters: Iterable[nn.Parameter], config: OptimiserConfig
) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba 2015) or RMSProp, torch's or TensorFlow's, over float32 parameters."""
    if config.kind == "adam":
        return torch.optim.Adam(
            parameters,
            lr=config.learning_rate,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.epsilon,
            fused=True,
        )
    given: dict[str, Any] = {
        "lr": config.learning_rate,
        "alpha": config.rmsprop_alpha,
        "eps": config.epsilon,
        "foreach": True,
    }
    if config.kind == "rmsprop_tf":
        return RMSpropOfTensorFlow(parameters, initial=config.rmsprop_initial, **given)
    return torch.optim.RMSprop(parameters, **given)


class RMSpropOfTensorFlow(torch.optim.RMSprop):
    """RMSProp as TensorFlow 1 has it, without momentum: what A3C's successors used.

    ε is under the root, θ ← θ − lr · g / √(s + ε), and the mean square s starts at `initial`, in
    TensorFlow 1, so that the first steps are small. Where a loss is the mean of n steps and theirs
    was the sum, g is n times smaller: with ε and `initial` divided by n² the steps are the same.

    Args:
        parameters: of any shapes.
        initial: first mean square of every weight.
        settings: of `torch.optim.RMSprop`.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, initial: float, **settings: Any
    ) -> None:
        super().__init__(parameters, **settings)
        self._initial = initial

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            given = [p for p in group["params"] if p.grad is not None]
            if not given:
                continue
            gradients = [p.grad for p in given]
            for parameter in given:
                if "square_avg" not in self.state[parameter]:
                    first = torch.full_like(parameter, self._initial)
                    self.state[parameter]["square_avg"] = first
            squares = [self.state[parameter]["square_avg"] for parameter in given]
            alpha = group["alpha"]
            torch._foreach_mul_(squares, alpha)
            torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - alpha)
            roots = torch._foreach_add(squares, group["eps"])
            torch._foreach_sqrt_(roots)
            torch._foreach_addcdiv_(given, gradients, roots, value=-group["lr"])


def clip_gradients(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Scale gradients down to the Euclidean norm `limit`, 0: none; returns their norm before.

    `torch.nn.utils.clip_grad_norm_` for tensors on one device, without its 50 µs of sorting.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    with torch.no_grad():
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        if limit > 0.0:
            torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm
