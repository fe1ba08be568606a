"""Optimisers, clipping and steps, from their configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from aclearn.config import OptimiserConfig
from aclearn.learning.decisions import readable

#: Numbers whose squares are added up at a time.
_SUMMED = 1 << 18


def make_optimiser(
    groups: Sequence[Mapping[str, Any]], config: OptimiserConfig
) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba 2015) or RMSProp, torch's or TensorFlow's, over float32 parameters.

    Args:
        groups: `params` of each, which is one tensor, and its `lr` and `max_grad_norm` where they
            are not those of `config`.
    """
    given = [
        {"lr": config.learning_rate, "max_grad_norm": config.max_grad_norm} | dict(group)
        for group in groups
    ]
    for group, its in zip(given, groups, strict=True):
        group["first_lr"], group["own_lr"] = group["lr"], "lr" in its
    made: torch.optim.Optimizer
    if config.kind == "adam":
        betas = (config.adam_beta1, config.adam_beta2)
        made = torch.optim.Adam(given, betas=betas, eps=config.epsilon, fused=True)
    else:
        made = RMSProp(
            given,
            alpha=config.rmsprop_alpha,
            eps=config.epsilon,
            initial=config.rmsprop_initial if config.kind == "rmsprop_tf" else None,
        )
    for parameter in (p for group in made.param_groups for p in group["params"]):
        if config.kind == "adam" and parameter.requires_grad:
            # before the first step, so that a CUDA graph finds it in place
            made.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return made


class RMSProp(torch.optim.Optimizer):
    """RMSProp without momentum, θ ← θ − lr · g / (√s + ε) with the mean square s of gradients.

    TensorFlow 1, which A3C's successors used, has ε under the root, θ ← θ − lr · g / √(s + ε), and
    s starts at `initial`, so that the first steps are small. Where a loss is the mean of n steps
    and theirs was the sum, g is n times smaller: with ε and `initial` divided by n² the steps are
    the same.

    Args:
        groups: parameters of any shapes, with their learning rates.
        alpha: decay of the mean square.
        eps: ε.
        initial: first mean square as in TensorFlow; None: 0, and ε outside of the root.
    """

    #: `[]` float32, 1 to leave everything as it is; None: 0 (as `torch.optim.Adam` has it).
    found_inf: Tensor | None = None

    def __init__(
        self, groups: Sequence[dict[str, Any]], *, alpha: float, eps: float, initial: float | None
    ) -> None:
        super().__init__(groups, {"alpha": alpha, "eps": eps})
        self._inside = initial is not None
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.requires_grad:
                first = torch.full_like(parameter, initial or 0.0)
                self.state[parameter]["square_avg"] = first

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            given = [p for p in group["params"] if p.grad is not None]
            if not given:
                continue
            gradients = [p.grad for p in given]
            squares = [self.state[parameter]["square_avg"] for parameter in given]
            changed = [] if self.found_inf is None else [*given, *squares]
            before = [tensor.clone() for tensor in changed]
            torch._foreach_mul_(squares, group["alpha"])
            torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - group["alpha"])
            if self._inside:
                roots = torch._foreach_add(squares, group["eps"])
                torch._foreach_sqrt_(roots)
            else:
                roots = torch._foreach_sqrt(squares)
                torch._foreach_add_(roots, group["eps"])
            steps = torch._foreach_mul(gradients, group["lr"])
            torch._foreach_addcdiv_(given, steps, roots, value=-1.0)
            for tensor, old in zip(changed, before, strict=True):
                assert self.found_inf is not None
                tensor.copy_(torch.where(self.found_inf > 0, old, tensor))


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Learn with another `OptimiserConfig.learning_rate`, but for groups with one of their own."""
    for group in optimiser.param_groups:
        if not group["own_lr"]:
            group["first_lr"] = rate


@torch.no_grad()
def clip_gradients(optimiser: torch.optim.Optimizer) -> Tensor:
    """Scale each group's gradient down to its `max_grad_norm`; the norm of all before, `[]`."""
    norms: list[Tensor] = []
    for group in optimiser.param_groups:
        [vector] = group["params"]
        # of parts: a sum of millions of float32 numbers loses digits
        norms.append(_joined(torch._foreach_norm(vector.grad.split(_SUMMED))))
        if (limit := group["max_grad_norm"]) > 0.0:
            vector.grad.mul_((limit / (norms[-1] + 1e-6)).clamp(max=1.0))
    return _joined(norms)


def _joined(norms: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """The norm of all parts."""
    if len(norms) == 1:
        return norms[0]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def step(
    optimiser: torch.optim.Optimizer,
    config: OptimiserConfig,
    *,
    applied: Tensor,
    learned: Tensor,
    scale: Tensor | None = None,
) -> Tensor:
    """A step of the optimiser, which leaves everything as it was where `applied` is False.

    Args:
        optimiser: of `make_optimiser`; its parameters have gradients.
        applied: `[]` bool.
        learned: `[]` int64, agent steps learned before.
        scale: `[]` float64, factor of the learning rate; None: 1.

    Returns:
        The learning rate of the first group, `[]` float64.
    """
    if readable(applied.device):
        share = max(0.0, config.share_left(int(learned)))
        if scale is not None:
            share *= float(scale)
        if applied:
            for group in optimiser.param_groups:
                group["lr"] = group["first_lr"] * share
            optimiser.step()
        return torch.tensor(optimiser.param_groups[0]["first_lr"] * share, dtype=torch.float64)
    wide = learned.double()
    left = (torch.zeros_like(wide) + config.share_left(wide)).clamp(min=0.0)
    if scale is not None:
        left = left * scale
    rates: list[Tensor] = [group["first_lr"] * left for group in optimiser.param_groups]
    capturing = applied.is_cuda and torch.cuda.is_current_stream_capturing()
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        # torch warns of `capturable` steps that are not captured
        group["lr"], group["capturable"] = rate.float(), capturing
    optimiser.found_inf = (~applied).float()  # type: ignore[attr-defined]  # as a GradScaler does
    optimiser.step()
    optimiser.found_inf = None  # type: ignore[attr-defined]
    for group in optimiser.param_groups:
        group["capturable"] = False
    return rates[0]
