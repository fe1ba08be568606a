"""The torch module of an architecture: its policy, its critic and their weights."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from aclearn.policies.architecture import (
    ACTION,
    ACTION_VALUES,
    POLICY,
    SECOND_VALUE,
    VALUE,
    Architecture,
)
from aclearn.policies.layer_network import LayerNetwork
from aclearn.policies.layers import needed_by
from aclearn.policies.policy_module import PolicyModule
from aclearn.policies.users_network import seeded
from aclearn.types import LeafSpec, ObservationSpec, PolicyOutput


class PolicyNetwork(LayerNetwork, PolicyModule):
    """A policy and a critic of an `Architecture`.

    Initial weights are orthogonal with the gains of their layers, biases zero, logarithms of
    deviations as their layer says. A network of the user's own draws its weights itself.

    Args:
        seed: of the initial weights; None for any.
        fold_scales: as of `LayerNetwork`.
    """

    def __init__(
        self, architecture: Architecture, *, seed: int | None = None, fold_scales: bool = False
    ) -> None:
        with seeded(seed):
            super().__init__(architecture.layers, architecture.observation, fold_scales=fold_scales)
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
        leaves = [in_a_row(observations[name]) for name in self.leaves]
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


def in_a_row(leaf: Tensor) -> Tensor:
    """`[T · B, …]` of `[T, B, …]`; images keep channels-last memory where they must be copied."""
    if leaf.ndim != 5:
        return leaf.flatten(0, 1)
    return leaf.movedim(2, -1).flatten(0, 1).movedim(-1, 1)


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
