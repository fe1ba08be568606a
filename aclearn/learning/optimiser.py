"""Optimisers, clipping and steps, from their configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from typing_extensions import override

from aclearn.config import OptimiserConfig
from aclearn.learning.decisions import readable

#: Numbers whose squares are added up at a time.
_SUMMED = 1 << 18


class Optimiser:
    """Vectors of weights in groups, each with its settings.

    It has the attributes of torch's class of that name, which this is not: the first object of that
    one loads torch's compiler, more than a second of CPU time of every process that learns.

    Args:
        groups: `params` of each and its `lr`.

    Attributes:
        param_groups: the groups, as given.
        state: tensors by name of each parameter that learns.
        found_inf: `[]` float32, 1 to leave everything as it is; None: 0.
    """

    def __init__(self, groups: Sequence[dict[str, Any]]) -> None:
        self.param_groups = list(groups)
        self.found_inf: Tensor | None = None
        # before the first step, so that a CUDA graph finds it in place
        self.state: dict[Tensor, dict[str, Tensor]] = {
            parameter: self._first_state(parameter)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.requires_grad
        }

    @torch.no_grad()
    def step(self) -> None:
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    self._step(weights, weights.grad, group["lr"], **self.state[weights])

    def _first_state(self, parameter: Tensor) -> dict[str, Tensor]:
        raise NotImplementedError

    def _step(
        self, weights: Tensor, gradient: Tensor, rate: float | Tensor, **state: Tensor
    ) -> None:
        raise NotImplementedError


def make_optimiser(groups: Sequence[Mapping[str, Any]], config: OptimiserConfig) -> Optimiser:
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
    if config.kind == "adam":
        return Adam(given, betas=(config.adam_beta1, config.adam_beta2), eps=config.epsilon)
    return RMSProp(
        given,
        alpha=config.rmsprop_alpha,
        eps=config.epsilon,
        initial=config.rmsprop_initial if config.kind == "rmsprop_tf" else None,
    )


class Adam(Optimiser):
    """Adam by torch's own function, one kernel for a vector.

    Args:
        groups: parameters of any shapes, with their learning rates.
        betas: decay of the means of gradients and of their squares.
        eps: ε, outside of the root.
    """

    def __init__(
        self, groups: Sequence[dict[str, Any]], *, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__(groups)
        self._betas, self._eps = betas, eps

    @override
    def _first_state(self, parameter: Tensor) -> dict[str, Tensor]:
        return {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }

    @override
    def _step(
        self, weights: Tensor, gradient: Tensor, rate: float | Tensor, **state: Tensor
    ) -> None:
        adam(
            [weights],
            [gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            fused=True,
            found_inf=self.found_inf,
            amsgrad=False,
            beta1=self._betas[0],
            beta2=self._betas[1],
            lr=rate,
            weight_decay=0.0,
            eps=self._eps,
            maximize=False,
        )


class RMSProp(Optimiser):
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

    def __init__(
        self, groups: Sequence[dict[str, Any]], *, alpha: float, eps: float, initial: float | None
    ) -> None:
        self._alpha, self._eps, self._initial = alpha, eps, initial
        super().__init__(groups)

    @override
    def _first_state(self, parameter: Tensor) -> dict[str, Tensor]:
        return {"square_avg": torch.full_like(parameter, self._initial or 0.0)}

    @override
    def _step(
        self, weights: Tensor, gradient: Tensor, rate: float | Tensor, **state: Tensor
    ) -> None:
        square = state["square_avg"]
        changed = [] if self.found_inf is None else [weights, square]
        before = [tensor.clone() for tensor in changed]
        square.mul_(self._alpha).addcmul_(gradient, gradient, value=1.0 - self._alpha)
        if self._initial is None:
            root = square.sqrt().add_(self._eps)
        else:
            root = (square + self._eps).sqrt_()
        weights.addcdiv_(gradient * rate, root, value=-1.0)
        for tensor, old in zip(changed, before, strict=True):
            assert self.found_inf is not None
            tensor.copy_(torch.where(self.found_inf > 0, old, tensor))


def set_rate(optimiser: Optimiser, rate: float) -> None:
    """Learn with another `OptimiserConfig.learning_rate`, but for groups with one of their own."""
    for group in optimiser.param_groups:
        if not group["own_lr"]:
            group["first_lr"] = rate


@torch.no_grad()
def clip_gradients(optimiser: Optimiser) -> Tensor:
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
    optimiser: Optimiser,
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
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate.float()
    optimiser.found_inf = (~applied).float()
    optimiser.step()
    optimiser.found_inf = None
    return rates[0]
