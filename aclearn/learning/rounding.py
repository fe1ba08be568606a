"""The forward pass as compressed actors compute it: rounded, with the gradient of the exact one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

#: Largest step of an activation above the least one: uint8.
_ACTIVATION_STEPS: Final = 255.0


@dataclass(frozen=True)
class Rounding:
    """What actors round of a network (`trainer.as_actors`).

    The gradient takes each rounding for the identity (straight-through; Bengio et al. 2013). An
    int8 activation has the range of the forward pass, since the actors' ranges are measured in a
    compressor: the trainer's steps are about as wide, and weights are rounded alike.

    Attributes:
        precision: of the products' weights; int8 rounds their inputs too.
        products: names of the layers that compute in it; of halves also those of deviations.
        exact_inputs: those of `products` whose inputs, raw pixels, are not rounded.
        own_outputs: those whose outputs are rounded by a range of their own.
        per_channel: one scale of int8 weights for each output channel.
        weight_steps: largest int8 weight: 127, or 63 of 7 bits.
    """

    precision: Literal["int8", "fp16", "bf16"]
    products: frozenset[str]
    exact_inputs: frozenset[str] = frozenset()
    own_outputs: frozenset[str] = frozenset()
    per_channel: bool = False
    weight_steps: int = 127

    def install(self, network: nn.Module) -> None:
        """Let the products of a network round from now on; its parameters stay what they are."""
        for name, module in network.named_modules():
            if name in self.products:
                module.forward = partial(self._computed, name, module)

    def _computed(self, name: str, module: Any, x: Tensor) -> Tensor:
        if hasattr(module, "log_std"):
            log_std = straight_through(module.log_std, self._weight(module.log_std.detach()))
            return torch.cat([x, log_std.expand(x.shape[0], -1)], -1)
        weight = straight_through(module.weight, self._weight(module.weight.detach()))
        bias = module.bias
        if self.precision != "int8" and bias is not None:  # int8 has 32 bits for it
            bias = straight_through(bias, self._weight(bias.detach()))
        if self.precision == "int8" and name not in self.exact_inputs:
            x = straight_through(x, activation(x.detach()))
        if isinstance(module, nn.Conv2d):
            y = nn.functional.conv2d(x, weight, bias, module.stride, module.padding)
        else:
            y = nn.functional.linear(x, weight, bias)
        if self.precision == "int8" and name in self.own_outputs:
            y = straight_through(y, activation(y.detach()))
        return y

    def _weight(self, weight: Tensor) -> Tensor:
        if self.precision != "int8":
            half = torch.float16 if self.precision == "fp16" else torch.bfloat16
            return weight.to(half).to(weight.dtype)
        dims = tuple(range(1, weight.dim())) if self.per_channel else tuple(range(weight.dim()))
        scale = weight.abs().amax(dims, keepdim=True) / self.weight_steps
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        return (weight / scale).round() * scale


def straight_through(exact: Tensor, rounded: Tensor) -> Tensor:
    """`rounded`, with the gradient of `exact`."""
    return exact + (rounded - exact).detach()


def activation(x: Tensor) -> Tensor:
    """`x` in the 256 steps of its range and of 0, which is exact."""
    least, most = x.amin().clamp(max=0.0), x.amax().clamp(min=0.0)
    scale = (most - least) / _ACTIVATION_STEPS
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    zero = (-least / scale).round()
    steps = ((x / scale).round() + zero).clamp(0.0, _ACTIVATION_STEPS)
    return (steps - zero) * scale
