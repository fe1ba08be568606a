"""The torch module of a list of layers."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from aclearn.errors import ConfigError
from aclearn.policies.architecture import (
    ACTION,
    ACTION_VALUES,
    POLICY,
    SECOND_VALUE,
    VALUE,
    Architecture,
)
from aclearn.policies.layers import MOST_DEVIATIONS, Layer, Shape, needed_by, output_shapes
from aclearn.policies.policy_module import PolicyModule
from aclearn.policies.users_network import UsersNetwork, seeded
from aclearn.types import LeafSpec, ObservationSpec, PolicyOutput
from aclearn.types.observation_spec import Observations

_Compute = Callable[..., Tensor]


def _convolution(layer: Layer, given: Shape) -> nn.Module:
    window = (layer.kernel, layer.stride, layer.padding)
    return nn.Conv2d(given[0], layer.units, *window, bias=layer.bias)


def _dense(layer: Layer, given: Shape) -> nn.Module:
    return nn.Linear(given[0], layer.units, bias=layer.bias)


def _scale(layer: Layer, given: Shape) -> _Compute:
    # in place: `LayerNetwork.outputs` has made a copy if there is something to multiply
    return partial(Tensor.mul_, other=layer.factor) if layer.factor != 1.0 else _same


def _same(x: Tensor) -> Tensor:
    return x


def _concat(*parts: Tensor) -> Tensor:
    return torch.cat(parts, 1)


def _dueling(advantages: Tensor, value: Tensor) -> Tensor:
    return value + (advantages - advantages.mean(1, keepdim=True))


def _max_pool(layer: Layer, given: Shape) -> _Compute:
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


KINDS: dict[str, Callable[[Layer, Shape], _Compute]] = {
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
    "normalise": _Normaliser,
    "denormalise": _Normaliser,
}
"""Kind of layer → a function of a layer and its input shape that returns its computation. A module
gets the layer's name."""


class _Step(NamedTuple):
    name: str
    compute: _Compute
    reads: tuple[str, ...]
    head: bool
    unneeded: tuple[str, ...]  # dropped after it, to free their memory
    reads_raw: bool  # observations in their own dtype: it converts after its computation


class LayerNetwork(nn.Module):
    """A list of layers in torch; its parameters have the names of `layers.tensor_shapes`.

    Raises:
        ConfigError: `KINDS` lacks a layer's kind.
    """

    def __init__(self, layers: Sequence[Layer], observation: ObservationSpec) -> None:
        super().__init__()
        self.layers, self.leaves = tuple(layers), tuple(observation)
        shapes = output_shapes(layers, observation)
        last_reader = {name: layer.name for layer in layers for name in layer.reads}
        self._steps: list[_Step] = []
        for layer in layers:
            if layer.kind not in KINDS:
                raise ConfigError(
                    f"policy: layer {layer.name!r}: torch has no kind {layer.kind!r}; expected "
                    f"one of {', '.join(KINDS)}, or put it into aclearn.policies.network.KINDS"
                )
            compute = KINDS[layer.kind](layer, shapes[layer.reads[0]])
            owned = compute.module if isinstance(compute, UsersNetwork) else compute
            if isinstance(owned, nn.Module):
                _place(self, layer.name, owned)
            unneeded = tuple(
                name for name in layer.reads if last_reader[name] == layer.name and name != POLICY
            )
            raw = layer.kind == "normalise"
            step = _Step(layer.name, compute, layer.reads, layer.head, unneeded, raw)
            self._steps.append(step)
        products = (i for i, layer in enumerate(layers) if layer.is_product)
        self._product = next(products, None)  # a network of the user's own has none
        first = {layer.reads[0]: layer for layer in layers if layer.reads[0] in observation}
        self._raw = {name for name, layer in first.items() if layer.kind == "normalise"}
        self._scaled = {
            name for name, layer in first.items() if layer.kind == "scale" and layer.factor != 1.0
        }

    def leaf_tensors(self, observations: Observations) -> list[Tensor]:
        """Copies of the leaves' arrays on the CPU, in the order of the network's inputs."""
        # copies: torch warns of the read-only views of a message
        return [torch.from_numpy(np.array(observations[name])) for name in self.leaves]

    def outputs(self, *observations: Tensor, every_layer: bool = False) -> dict[str, Tensor]:
        """The outputs of the heads, or of all layers, by name, for each leaf's `[N, *shape]`.

        Heads compute in the weights' dtype under autocast too: they are cheap, and bf16 has no
        value between 100 and 100.5.
        """
        weight: Tensor
        if self._product is None:
            weight = next(self.parameters())
        else:  # takes 3 µs; `parameters` takes 12
            weight = self._steps[self._product].compute.weight  # type: ignore[attr-defined]
        dtype, device = weight.dtype, observations[0].device.type
        autocast = torch.is_autocast_enabled(device)
        values = {
            name: leaf if name in self._raw else leaf.to(dtype, copy=name in self._scaled)
            for name, leaf in zip(self.leaves, observations, strict=True)
        }
        for name, compute, reads, head, unneeded, reads_raw in self._steps:
            given = [values[read] for read in reads]
            if head and autocast:
                with torch.autocast(device, enabled=False):
                    values[name] = compute(*(x.to(dtype) for x in given))
            else:
                values[name] = compute(*given)
            if reads_raw:
                values[name] = values[name].to(dtype)
            for read in () if every_layer else unneeded:
                del values[read]
        return values


class PolicyNetwork(LayerNetwork, PolicyModule):
    """A policy and a critic of an `Architecture`.

    Initial weights are orthogonal with the gains of their layers, biases zero, logarithms of
    deviations as their layer says. A network of the user's own draws its weights itself.

    Args:
        seed: of the initial weights; None for any.
    """

    def __init__(self, architecture: Architecture, *, seed: int | None = None) -> None:
        with seeded(seed):
            super().__init__(architecture.layers, architecture.observation)
        self.architecture = architecture
        generator = torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        gains = {f"{layer.name}.weight": layer.gain for layer in self.layers}
        initial = {f"{layer.name}.log_std": layer.initial for layer in self.layers}
        users = tuple(f"{layer.name}." for layer in self.layers if layer.module is not None)
        for name, parameter in self.named_parameters():
            # statistics of nothing yet, or weights that the user's network has drawn
            if not parameter.requires_grad or name.startswith(users):
                continue
            if parameter.ndim == 1:
                nn.init.constant_(parameter, initial.get(name, 0.0))
            else:
                nn.init.orthogonal_(parameter, gains[name], generator=generator)

        if architecture.values_actions:
            critics = _ActionCritics(architecture)
            weights: dict[str, Tensor] = dict(self.named_parameters())
            self._critic_weights = {name: weights[name] for name, _ in critics.named_parameters()}
            self._critics = partial(functional_call, critics)
            if architecture.has_pair:  # only asked for given actions
                acting = {layer.name for layer in architecture.acting().layers}
                self._steps = [step for step in self._steps if step.name in acting]

    def forward(self, *observations: Tensor) -> tuple[Tensor, Tensor | None]:
        """The distribution's parameters `[N, P]`, and state values `[N]` or action values `[N, A]`.

        All are fp32 under autocast too. Each leaf is `[N, *shape]`.
        """
        given = self.outputs(*observations)
        if VALUE in given:
            return given[POLICY], given[VALUE].squeeze(1)
        return given[POLICY], given.get(ACTION_VALUES)

    def action_values(
        self, observations: Mapping[str, Tensor], actions: Tensor, *, fixed: bool = False
    ) -> tuple[Tensor, ...]:
        """Q(x, a) `[…]` float32 of each critic, for `[…, *shape]` by leaf and actions `[…, n]`.

        Args:
            actions: between -1 and 1.
            fixed: the gradient reaches the actions, not the critics' weights.
        """
        weights = self._critic_weights
        if fixed:
            weights = {name: weight.detach() for name, weight in weights.items()}
        ahead = actions.shape[:-1]
        leaves = [
            leaf.flatten(0, len(ahead) - 1)
            for leaf in (*(observations[name] for name in self.leaves), actions)
        ]
        return tuple(values.view(ahead) for values in self._critics(weights, tuple(leaves)))

    def step(
        self, observations: Mapping[str, Tensor], state: tuple[Tensor, ...] = ()
    ) -> PolicyOutput[Tensor]:
        """Outputs for observations `[B, …]`; the policy has no state."""
        return self._output(*self(*(observations[name] for name in self.leaves)))

    def unroll(
        self, observations: Mapping[str, Tensor], state: tuple[Tensor, ...], starts: Tensor
    ) -> PolicyOutput[Tensor]:
        """Outputs `[T, B, …]`, all steps in one pass."""
        parameters, values = self(*(observations[name].flatten(0, 1) for name in self.leaves))
        return self._output(
            parameters.unflatten(0, starts.shape),
            None if values is None else values.unflatten(0, starts.shape),
        )

    def _output(self, parameters: Tensor, values: Tensor | None) -> PolicyOutput[Tensor]:
        if self.architecture.critic == "q":
            return PolicyOutput(parameters, q=values)
        return PolicyOutput(parameters, values)


class _ActionCritics(LayerNetwork):
    """The critics Q(x, a) of an architecture, without weights; the actions are the last leaf."""

    def __init__(self, architecture: Architecture) -> None:
        layers = [layer for layer in architecture.layers if layer.name != ACTION]
        names = {layer.name for layer in layers}
        self._heads = [head for head in (VALUE, SECOND_VALUE) if head in names]
        action = LeafSpec((architecture.action_spec.numbers,), "float32")
        leaves = ObservationSpec({**architecture.observation, ACTION: action})
        with torch.device("meta"):
            super().__init__(needed_by(layers, *self._heads), leaves)

    def forward(self, *leaves: Tensor) -> list[Tensor]:
        given = self.outputs(*leaves)
        return [given[head].squeeze(1).float() for head in self._heads]


def _place(root: nn.Module, dotted: str, module: nn.Module) -> None:
    *path, last = dotted.split(".")
    for name in path:
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    root.add_module(last, module)


def tensors_of(
    network: nn.Module, names: Container[str] | None = None
) -> dict[str, NDArray[np.float32]]:
    """A copy of the weights, all or these, as contiguous float32 arrays; nothing may write then."""
    return {
        # contiguous: channels-last convolutions must be sent in the default order
        name: parameter.detach().to("cpu", torch.float32).contiguous().numpy().copy()
        for name, parameter in network.named_parameters()
        if names is None or name in names
    }


def target_moments(network: LayerNetwork) -> tuple[Tensor, Tensor] | None:
    """The mean and standard deviation `[1]` by which a network denormalises values; None if not."""
    for layer in network.layers:
        if layer.kind == "denormalise":
            module = network.get_submodule(layer.name)
            return module.get_parameter("mean"), module.get_parameter("std")
    return None


def load_tensors(network: nn.Module, tensors: Mapping[str, NDArray[np.float32]]) -> None:
    """Write `tensors` into the network.

    Raises:
        ValueError: a name is missing or unknown, or a shape differs.
    """
    parameters = dict(network.named_parameters())
    if set(parameters) != set(tensors):
        raise ValueError(f"tensors: expected {sorted(parameters)}, got {sorted(tensors)}")
    for name, parameter in parameters.items():
        if tuple(parameter.shape) != tuple(tensors[name].shape):
            raise ValueError(
                f"tensors[{name!r}]: expected shape {tuple(parameter.shape)}, "
                f"got {tuple(tensors[name].shape)}"
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.array(tensors[name], dtype=np.float32)))
