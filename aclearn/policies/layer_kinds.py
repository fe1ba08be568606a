"""What each kind of layer computes in torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from typing_extensions import override

from aclearn.distributions.gaussian import LOG_STD_RANGE
from aclearn.errors import ConfigError
from aclearn.policies.layers import MOST_DEVIATIONS, SMALLEST, TIES, Layer, Shape
from aclearn.policies.users_network import UsersNetwork

Compute = Callable[..., Tensor]


class ScaledConvolution(nn.Conv2d):
    """A convolution of `factor` times its input, which multiplies the weight instead.

    A weight is far smaller than a batch of images, and autograd gives the gradient of the weight.
    """

    factor = 1.0

    @override
    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight if self.factor == 1.0 else self.weight * self.factor
        found: Tensor = self._conv_forward(input, weight, self.bias)
        return found


def _convolution(layer: Layer, given: Shape) -> nn.Module:
    window = (layer.kernel, layer.stride, layer.padding)
    return ScaledConvolution(given[0], layer.units, *window, bias=layer.bias)


def _dense(layer: Layer, given: Shape) -> nn.Module:
    return nn.Linear(given[0], layer.units, bias=layer.bias)


def _scale(layer: Layer, given: Shape) -> Compute:
    # in place: `LayerNetwork.outputs` has made a copy if there is something to multiply
    return partial(Tensor.mul_, other=layer.factor) if layer.factor != 1.0 else same


def same(x: Tensor) -> Tensor:
    """`x`."""
    return x


def _concat(*parts: Tensor) -> Tensor:
    return torch.cat(parts, 1)


def _dueling(advantages: Tensor, value: Tensor) -> Tensor:
    return value + (advantages - advantages.mean(1, keepdim=True))


def _max_pool(layer: Layer, given: Shape) -> Compute:
    window = {"kernel_size": layer.kernel, "stride": layer.stride, "padding": layer.padding}
    return partial(nn.functional.max_pool2d, **window)


def _users_network(layer: Layer, given: Shape) -> UsersNetwork:
    if layer.module is None:
        raise ConfigError(f"policy: layer {layer.name!r} of kind 'module' has no module")
    return UsersNetwork(layer.module)


class _LogStd(nn.Module):
    def __init__(self, units: int) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(units))

    def forward(self, x: Tensor) -> Tensor:
        # `x.shape`, which a trace keeps open; it would take `len` as a constant
        return torch.cat([x, self.log_std.expand(x.shape[0], -1)], -1)


def _mean(*parts: Tensor) -> Tensor:
    return torch.stack(parts).mean(0)


def _logarithm(shares: Tensor) -> Tensor:
    return shares.clamp(min=SMALLEST).log()


def _mean_of_choices(*logits: Tensor) -> Tensor:
    return _logarithm(torch.stack(logits).softmax(-1).mean(0))


def _votes(*logits: Tensor) -> Tensor:
    each = torch.stack(logits)
    votes = (each == each.amax(-1, keepdim=True)).to(each.dtype).mean(0)
    return _logarithm((1.0 - TIES) * votes + TIES * each.softmax(-1).mean(0))


def _mean_of_numbers(*parameters: Tensor) -> Tensor:
    means, log_stds = torch.stack(parameters).chunk(2, -1)
    mean = means.mean(0)
    own = (2.0 * log_stds.clamp(*LOG_STD_RANGE)).exp().mean(0)
    variance = own + (means - mean).square().mean(0)
    return torch.cat([mean, 0.5 * variance.log()], -1)


def _lstm_cell(gates: Tensor, cell: Tensor) -> Tensor:
    of_input, forget, new, _ = gates.chunk(4, 1)
    return torch.sigmoid(forget) * cell + torch.sigmoid(of_input) * torch.tanh(new)


def _lstm_output(gates: Tensor, cell: Tensor) -> Tensor:
    return torch.sigmoid(gates.chunk(4, 1)[3]) * torch.tanh(cell)


def _gru(of_input: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
    (reset, update, new), (reset_h, update_h, new_h) = of_input.chunk(3, 1), of_state.chunk(3, 1)
    new = torch.tanh(new + torch.sigmoid(reset + reset_h) * new_h)
    return new + torch.sigmoid(update + update_h) * (state - new)


class _Normaliser(nn.Module):
    def __init__(self, layer: Layer, given: Shape) -> None:
        super().__init__()
        self._inverse = layer.kind == "denormalise"
        shapes = layer.tensor_shapes(given)
        # parameters, so that all that copies, sends and saves weights has them
        self.mean, self.std = (
            nn.Parameter(fill(shapes[f"{layer.name}.{name}"]), requires_grad=False)
            for name, fill in (("mean", torch.zeros), ("std", torch.ones))
        )

    def forward(self, x: Tensor) -> Tensor:
        if self._inverse:
            return x * self.std + self.mean
        return ((x - self.mean) / self.std).clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)


KINDS: dict[str, Callable[[Layer, Shape], Compute]] = {
    "scale": _scale,
    "convolution": _convolution,
    "dense": _dense,
    "max_pool": _max_pool,
    "flatten": lambda layer, given: partial(torch.flatten, start_dim=1),
    "relu": lambda layer, given: torch.relu,
    "tanh": lambda layer, given: torch.tanh,
    "elu": lambda layer, given: nn.functional.elu,
    "silu": lambda layer, given: nn.functional.silu,
    "add": lambda layer, given: torch.add,
    "concat": lambda layer, given: _concat,
    "dueling": lambda layer, given: _dueling,
    "log_std": lambda layer, given: _LogStd(layer.units),
    "module": _users_network,
    "part": lambda layer, given: partial(
        torch.narrow, dim=1, start=layer.start, length=layer.units
    ),
    "lstm_cell": lambda layer, given: _lstm_cell,
    "lstm_output": lambda layer, given: _lstm_output,
    "gru": lambda layer, given: _gru,
    "mean": lambda layer, given: _mean,
    "mean_of_choices": lambda layer, given: _mean_of_choices,
    "votes": lambda layer, given: _votes,
    "mean_of_numbers": lambda layer, given: _mean_of_numbers,
    "normalise": _Normaliser,
    "denormalise": _Normaliser,
}
"""Kind of layer → a function of a layer and its input shape that returns its computation. A module
gets the layer's name."""
