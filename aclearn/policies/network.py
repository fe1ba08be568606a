"""The torch module of a list of layers."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import nullcontext
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
from aclearn.policies.layers import (
    MOST_DEVIATIONS,
    Layer,
    Shape,
    needed_by,
    output_shapes,
    recurrence,
    states,
)
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
    "lstm_cell": lambda layer, given: _lstm_cell,
    "lstm_output": lambda layer, given: _lstm_output,
    "gru": lambda layer, given: _gru,
    "normalise": _Normaliser,
    "denormalise": _Normaliser,
}
"""Kind of layer → a function of a layer and its input shape that returns its computation. A module
gets the layer's name."""


class _Step(NamedTuple):
    name: str
    compute: _Compute
    reads: tuple[str, ...]
    exact: bool  # in the weights' dtype under autocast too
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
        parts = recurrence(layers)
        ordered = [layer for part in parts for layer in part]
        last_reader = {name: layer.name for layer in ordered for name in layer.reads}
        self.states = states(layers)
        kept = {POLICY, *(state.next for state in self.states)}
        computed: dict[str, _Step] = {}
        for layer in layers:
            if layer.kind == "state":
                continue
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
                name for name in layer.reads if last_reader[name] == layer.name and name not in kept
            )
            raw = layer.kind == "normalise"
            # a state's errors add up over the steps, and so do conversions of small tensors
            exact = layer.head or (layer in parts.steps and layer.module is None)
            step = _Step(layer.name, compute, layer.reads, exact, unneeded, raw)
            computed[layer.name] = step
        self._before, self._recurrent, self._after = (
            [computed[layer.name] for layer in part if layer.name in computed] for part in parts
        )
        self._steps = [*self._before, *self._recurrent, *self._after]
        self._whole = next(
            (
                (step, step.compute)
                for step in self._recurrent
                if isinstance(step.compute, UsersNetwork) and step.compute.unrolls
            ),
            None,
        )
        products = (i for i, step in enumerate(self._steps) if hasattr(step.compute, "weight"))
        self._product = next(products, None)  # a network of the user's own has none
        first = {
            layer.reads[0]: layer
            for layer in layers
            if layer.reads[:1] and layer.reads[0] in observation
        }
        self._raw = {name for name, layer in first.items() if layer.kind == "normalise"}
        self._scaled = {
            name for name, layer in first.items() if layer.kind == "scale" and layer.factor != 1.0
        }

    def leaf_tensors(self, observations: Observations) -> list[Tensor]:
        """Copies of the leaves' arrays on the CPU, in the order of the network's inputs."""
        # copies: torch warns of the read-only views of a message
        return [torch.from_numpy(np.array(observations[name])) for name in self.leaves]

    def outputs(
        self, *observations: Tensor, state: tuple[Tensor, ...] = (), every_layer: bool = False
    ) -> dict[str, Tensor]:
        """The outputs of the heads, or of all layers, by name, for each leaf's `[N, *shape]`.

        Heads and cells compute in the weights' dtype under autocast too: they are cheap, and bf16
        has no value between 100 and 100.5. The next states are there too, by their layers' names.

        Args:
            state: float32 `[N, units]` of each of `states`; `()` stands for zeros.
        """
        values, dtype = self._given(observations)
        values.update(self._state_of(state, observations[0], dtype))
        self._run(self._steps, values, dtype, every_layer=every_layer)
        return values

    def outputs_from(
        self, name: str, value: Tensor, *, state: tuple[Tensor, ...] = ()
    ) -> dict[str, Tensor]:
        """The outputs of the heads where the caller has computed layer `name`, `[N, units]`.

        No later layer may read what is before it.
        """
        after = next(i for i, step in enumerate(self._steps) if step.name == name) + 1
        values = {name: value, **self._state_of(state, value, value.dtype)}
        self._run(self._steps[after:], values, value.dtype)
        return values

    def unrolled(
        self,
        *observations: Tensor,
        state: tuple[Tensor, ...],
        starts: Tensor,
        every_layer: bool = False,
    ) -> dict[str, Tensor]:
        """The outputs of the heads for T steps in a row, `[T · B, …]`; next states after the last.

        With `every_layer` all outputs of all layers, the states before each step among them. Only
        a state reaches on its way to the next one is computed step after step.

        Args:
            observations: each leaf's `[T · B, *shape]`.
            state: before the first step, `[B, units]` each; `()` stands for zeros.
            starts: `[T, B]` bool, observations that begin an episode: the state before is zeroed.
        """
        values, dtype = self._given(observations)
        self._run(self._before, values, dtype, every_layer=every_layer)
        if self._whole is not None and not every_layer:  # with the state's parts at the end
            step, users = self._whole
            leaves = [values[name] for name in step.reads[: -len(self.states)]]
            now = self._state_of(state, starts[0], dtype)
            values[step.name], ends = users.unrolled(leaves, (*now.values(),), starts)
            self._run(self._after, values, dtype)
            return values | {each.next: end for each, end in zip(self.states, ends, strict=True)}
        exact = all(step.exact for step in self._recurrent)
        given = {name for step in self._recurrent for name in step.reads} & values.keys()
        by_step = {
            name: (values[name].to(dtype) if exact else values[name])
            .view(*starts.shape, *values[name].shape[1:])
            .unbind()
            for name in given
        }
        reached = {*(step.name for step in self._recurrent), *(each.name for each in self.states)}
        read = {name for step in self._after for name in step.reads} & reached
        rows: dict[str, list[Tensor]] = {name: [] for name in (reached if every_layer else read)}
        now = self._state_of(state, starts[0], dtype)
        # a GPU would have to wait for the answer
        some = starts.any(1).tolist() if starts.device.type == "cpu" else [True] * len(starts)
        # once for all steps: a context of its own for each layer would cost more than its products
        with torch.autocast(starts.device.type, enabled=False) if exact else nullcontext():
            for t, begins in enumerate(starts.unsqueeze(2)):
                at_t = {name: each[t] for name, each in by_step.items()} | now
                if some[t]:
                    at_t |= {name: part.masked_fill(begins, 0.0) for name, part in now.items()}
                self._run(self._recurrent, at_t, dtype, every_layer=True)
                for name, found in rows.items():
                    found.append(at_t[name])
                now = {each.name: at_t[each.next] for each in self.states}
        values |= {name: torch.cat(found) for name, found in rows.items()}
        self._run(self._after, values, dtype, every_layer=every_layer)
        if every_layer:
            return values
        return values | {each.next: now[each.name] for each in self.states}

    def _given(self, observations: Sequence[Tensor]) -> tuple[dict[str, Tensor], torch.dtype]:
        """The leaves as the first layers read them, and the weights' dtype."""
        weight: Tensor
        if self._product is None:
            weight = next(self.parameters())
        else:  # takes 3 µs; `parameters` takes 12
            weight = self._steps[self._product].compute.weight  # type: ignore[attr-defined]
        dtype = weight.dtype
        return {
            name: leaf if name in self._raw else leaf.to(dtype, copy=name in self._scaled)
            for name, leaf in zip(self.leaves, observations, strict=True)
        }, dtype

    def _state_of(
        self, state: tuple[Tensor, ...], like: Tensor, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """Each state by its layer's name; zeros in the rows of `like` without one."""
        if not state:
            rows = like.shape[0]  # which a trace keeps open; it would take `len` as a constant
            state = tuple(
                torch.zeros(rows, each.units, dtype=dtype, device=like.device)
                for each in self.states
            )
        parts = zip(self.states, state, strict=True)
        return {each.name: part.to(dtype) for each, part in parts}

    def _run(
        self,
        steps: Sequence[_Step],
        values: dict[str, Tensor],
        dtype: torch.dtype,
        *,
        every_layer: bool = False,
    ) -> None:
        """Compute the steps in order, in place."""
        device = next(iter(values.values())).device.type
        autocast = torch.is_autocast_enabled(device)
        for name, compute, reads, exact, unneeded, reads_raw in steps:
            given = [values[read] for read in reads]
            if exact and autocast:
                with torch.autocast(device, enabled=False):
                    values[name] = compute(*(x.to(dtype) for x in given))
            else:
                values[name] = compute(*given)
            if reads_raw:
                values[name] = values[name].to(dtype)
            for read in () if every_layer else unneeded:
                del values[read]


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

        by_name = {layer.name: layer for layer in self.layers}
        for layer in self.layers:
            if layer.kind == "lstm_cell":
                of_input = self.get_submodule(by_name[layer.reads[0]].reads[0])
                bias = of_input.get_parameter("bias")
                nn.init.ones_(bias.detach().chunk(4)[1])  # the forget gate's

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

        All are fp32 under autocast too. Each leaf is `[N, *shape]`. A memory begins with zeros.
        """
        found = self._output(self.outputs(*observations))
        return found.parameters, found.q if found.value is None else found.value

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
        """Outputs for observations `[B, …]`; all are fp32 under autocast too."""
        return self._output(
            self.outputs(*(observations[name] for name in self.leaves), state=state)
        )

    def unroll(
        self, observations: Mapping[str, Tensor], state: tuple[Tensor, ...], starts: Tensor
    ) -> PolicyOutput[Tensor]:
        """Outputs `[T, B, …]`; what no state reaches is computed for all steps in one pass."""
        leaves = [observations[name].flatten(0, 1) for name in self.leaves]
        if self.states:
            found = self._output(self.unrolled(*leaves, state=state, starts=starts))
        else:  # `forward`, which may be compiled
            parameters, values = self(*leaves)
            by_q = self.architecture.critic == "q"
            found = PolicyOutput(parameters, *((None, values) if by_q else (values, None)))
        parameters, value, q = (
            None if part is None else part.view(*starts.shape, *part.shape[1:])
            for part in (found.parameters, found.value, found.q)
        )
        assert parameters is not None
        return PolicyOutput(parameters, value, q, found.state)

    def _output(self, given: Mapping[str, Tensor]) -> PolicyOutput[Tensor]:
        value = given[VALUE].squeeze(1) if VALUE in given else None
        state = tuple(given[each.next].float() for each in self.states)
        return PolicyOutput(given[POLICY], value, given.get(ACTION_VALUES), state)


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
