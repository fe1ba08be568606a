"""The distillation loss, its data, and the student that it trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.distributions import TorchDistribution, torch_distribution_of
from aclearn.policies import Architecture
from aclearn.policies.architecture import POLICY, VALUE
from aclearn.policies.network import PolicyNetwork, target_moments, tensors_of
from aclearn.types import Visited
from compress.errors import DivergedTraining
from compress.graphs.graph_network import GraphNetwork
from compress.graphs.policy_graph import PolicyGraph, Tensors
from compress.runtimes.torch_runtime import channels_last
from compress.sequences import network_outputs

#: Each leaf's observations `[n, *shape]`, in the order of the network's inputs.
Leaves = tuple[Tensor, ...]


class DistillationLoss(NamedTuple):
    """Means over the batch; only `total` has a gradient."""

    total: Tensor
    kl: Tensor
    value: Tensor
    entropy: Tensor


def distillation_loss(
    *,
    student: TorchDistribution,
    values: Tensor,
    teacher: TorchDistribution,
    teacher_values: Tensor,
    value_cost: float = 0.5,
    entropy_cost: float = 0.0,
) -> DistillationLoss:
    """KL(π_original ‖ π_smaller) + ½ (v_original − v_smaller)² − β H(π_smaller).

    That is AcceRL's equation 1 with `value_cost` ½ and `entropy_cost` β, as a mean over the N
    states. Distributions and values are `[N]`; the teacher's, of the original policy, have no
    gradient.
    """
    kl = teacher.kl(student).mean()
    value = (teacher_values.float() - values.float()).square().mean()
    entropy = student.entropy().mean()
    total = kl + value_cost * value - entropy_cost * entropy
    return DistillationLoss(total, kl.detach(), value.detach(), entropy.detach())


def first_tensors(architecture: Architecture, *, seed: int) -> Tensors:
    """Random weights of a new student, whose critic does not begin small as a trainer's does.

    A student regresses values that are known. With small first weights of the critic, the steps
    that follow falling values end in hidden weights, and switch most units off.
    """
    layers = (
        replace(layer, gain=1.0)
        if layer.head and layer.kind == "dense" and not layer.name.startswith(POLICY)
        else layer
        for layer in architecture.layers
    )
    return tensors_of(PolicyNetwork(replace(architecture, layers=tuple(layers)), seed=seed))


def one_signed_layers(graph: PolicyGraph) -> list[str]:
    """Names of the hidden products with non-negative inputs: pixels, or outputs of a ReLU."""
    leaves = graph.architecture.observation
    signed = {name: leaf.dtype != "uint8" for name, leaf in leaves.items()}
    names = []
    for layer in graph.layers(with_value=True):
        read = any(signed[name] for name in layer.reads)
        if layer.is_product and not layer.head and not read:
            names.append(layer.name)
        keeps = layer.kind in ("scale", "max_pool", "flatten", "add", "concat")
        signed[layer.name] = layer.kind != "relu" and (read or not keeps)
    return names


def first_products(graph: PolicyGraph) -> list[str]:
    """Names of the policy's products that read a leaf through no other product."""
    raw, names = set(graph.architecture.observation), []
    for layer in graph.layers():
        if raw.isdisjoint(layer.reads):
            continue
        if layer.is_product:
            names.append(layer.name)
        else:
            raw.add(layer.name)
    return names


class Lessons(NamedTuple):
    """A part of the data, for one step.

    Attributes:
        parameters: the teacher's `[n, P]`.
        values: the teacher's `[n]`.
        masks: `[n, A]` bool, the allowed actions; None: all.
        along: their sequences, if they have some.
    """

    leaves: Leaves
    parameters: Tensor
    values: Tensor
    masks: Tensor | None = None
    along: Visited | None = None


class DistillationData:
    """Observations and a teacher's outputs, computed once each when first needed.

    Of policies with a memory they are sequences, and the teacher goes through each with its state.

    Args:
        visited: must not change while these data are used.
        amp_dtype: torch.bfloat16 for autocast of the teacher, None for fp32.
    """

    def __init__(self, visited: Visited, teacher: nn.Module, amp_dtype: torch.dtype | None) -> None:
        self._visited, self._teacher, self._amp_dtype = visited, teacher, amp_dtype
        self._answered = np.zeros(visited.sequences, bool)
        self._parameters = torch.zeros(0)
        self._values = torch.zeros(len(self))

    def __len__(self) -> int:
        return len(self._visited)

    def parts(self, size: int, rng: np.random.Generator) -> Iterator[Lessons]:
        """Endless batches of `size` observations, at most of all, in whole sequences.

        Each pass is a permutation.
        """
        count = len(self._answered)
        size = min(max(1, size // self._visited.length), count)
        while True:
            order = rng.permutation(count)
            for start in range(0, count - size + 1, size):
                yield self.part(order[start : start + size])

    def part(self, indices: NDArray[np.int64]) -> Lessons:
        """The sequences at `indices`, with the teacher's outputs."""
        new = indices[~self._answered[indices]]
        if len(new):
            parameters, values = self._ask(self._visited.take(new))
            if not len(self._parameters):
                self._parameters = parameters.new_zeros(len(self), parameters.shape[1])
            rows = self._rows(new)
            self._parameters[rows], self._values[rows] = parameters, values
            self._answered[new] = True
        some, rows = self._visited.take(indices), self._rows(indices)
        return Lessons(
            _leaves(some),
            self._parameters[rows],
            self._values[rows],
            None if some.masks is None else torch.from_numpy(some.masks),
            some if some.length > 1 or some.state else None,
        )

    def _rows(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        length = self._visited.length
        return (indices[:, None] * length + np.arange(length)).ravel()

    def _ask(self, some: Visited) -> tuple[Tensor, Tensor]:
        with (
            torch.no_grad(),
            torch.autocast("cpu", self._amp_dtype, enabled=self._amp_dtype is not None),
        ):
            along = some if some.length > 1 or some.state else None
            return _outputs(self._teacher, _leaves(some), along)


def _leaves(visited: Visited) -> Leaves:
    leaves = visited.observations.values()
    return tuple(channels_last(torch.from_numpy(leaf)) for leaf in leaves)


class Student:
    """A policy graph in training, with its Adam (Kingma & Ba 2015), on the CPU.

    Two measures keep a student's ReLUs alive. Where inputs have one sign, a common change of all
    weights of a unit moves its output alike in all states. Adam's normalised steps add up in that
    direction until the unit is zero everywhere and its gradient vanishes. Gradients are centred
    there (Yong et al. 2020, Gradient Centralization, eq. 1). And when the teacher's values rise or
    fall as a whole, the student's value bias follows at once, instead of all weights step by step.

    Args:
        graph: fp32.
        tensors: first tensors, those of the value included; copied.
        amp_dtype: torch.bfloat16 for autocast, None for fp32. Weights, loss and Adam are float32 in
            any case.
        workers: threads, each with a batch of its own in every step.

    Attributes:
        alive: whether the last step's gradient reached the first layer, or there was no gradient or
            only one distinct observation. While False, the outputs do not depend on the
            observations, and training cannot change that.
    """

    def __init__(
        self,
        graph: PolicyGraph,
        tensors: Tensors,
        *,
        learning_rate: float,
        value_cost: float,
        entropy_cost: float,
        max_grad_norm: float,
        amp_dtype: torch.dtype | None,
        workers: int = 1,
    ) -> None:
        self._graph, self._amp_dtype = graph, amp_dtype
        self._value_cost, self._entropy_cost = value_cost, entropy_cost
        self._distribution = torch_distribution_of(graph.architecture.action_spec)
        self._max_grad_norm = max_grad_norm
        self._networks = [GraphNetwork(graph).load(tensors) for _ in range(workers)]
        if graph.architecture.convolves:
            for network in self._networks:
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network = self._networks[0]
        self._pool = ThreadPoolExecutor(max(1, workers - 1), thread_name_prefix="student")
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=learning_rate, fused=True)
        parameter = self.network.get_parameter
        self._first = [parameter(f"{name}.weight") for name in first_products(graph)]
        self._centred = [parameter(f"{name}.weight") for name in one_signed_layers(graph)]
        moments, head = target_moments(self.network), VALUE
        if moments is not None:
            [head] = next(layer.reads for layer in self.network.layers if layer.name == VALUE)
        if graph.architecture.critic is not None:
            self._value_bias = parameter(f"{head}.bias")
        self._value_std = torch.ones(()) if moments is None else moments[1]
        self.alive = True

    def learn(self, batches: Sequence[Lessons], *, renewed: bool = False) -> DistillationLoss:
        """One step of Adam on the mean gradient of batches, one for each worker or fewer.

        Each is a part of the data (`DistillationData.part`), all of one size. A student with a
        memory goes through each sequence with its own state; gradients go back to the sequence's
        beginning.

        With `renewed` (the first step, or another teacher than in the last one) the teacher's mean
        value above the student's is added to the value bias. In the loss each batch has its own.

        Raises:
            DivergedTraining: loss or gradient is not finite; the weights stay as they were.
        """
        losses, offsets = self._differentiate(batches, renewed)
        loss = DistillationLoss(*(torch.stack(each).mean() for each in zip(*losses, strict=True)))
        offset = torch.stack(offsets).mean()
        # on equal observations, such as black screens, all units may be zero and still learn later
        reached = any(bool(_gradient(weight).any()) for weight in self._first) or not any(
            bool((leaf != leaf[:1]).any()) for lessons in batches for leaf in lessons.leaves
        )
        for weight in self._centred:
            gradient = _gradient(weight)
            gradient.sub_(gradient.mean(tuple(range(1, gradient.dim())), keepdim=True))
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self._max_grad_norm)
        # before the step: afterwards weights and moments would be lost
        if not bool(torch.isfinite(loss.total) & torch.isfinite(norm)):
            raise DivergedTraining(
                f"loss {float(loss.total)}, gradient norm {float(norm)}: not finite"
            )
        self.alive = reached or not bool(norm)
        if offset:
            with torch.no_grad():
                self._value_bias.add_(self._value_scale * offset)
        self.optimiser.step()
        return loss

    def _differentiate(
        self, batches: Sequence[Lessons], renewed: bool
    ) -> tuple[list[DistillationLoss], list[Tensor]]:
        """Each batch's loss and value offset; the mean of their gradients is in the network."""
        networks = self._networks[: len(batches)]
        parameters: list[list[Tensor]] = [list(network.parameters()) for network in networks]
        with torch.no_grad():
            for copy in parameters[1:]:
                torch._foreach_copy_(copy, parameters[0])
        for parameter in (each for own in parameters for each in own):
            parameter.grad = None
        running = [
            self._pool.submit(self._differentiate_one, network, lessons, renewed)
            for network, lessons in zip(networks[1:], batches[1:], strict=True)
        ]
        try:
            first = self._differentiate_one(networks[0], batches[0], renewed)
        finally:
            wait(running)  # they use the copies
        losses, offsets = zip(first, *(each.result() for each in running), strict=True)
        # in place: the fused Adam wants gradients in the memory order of their weights
        for mine, *others in zip(*parameters, strict=True):
            for gradient in (other.grad for other in others if other.grad is not None):
                mine.grad = gradient if mine.grad is None else mine.grad.add_(gradient)
            if mine.grad is not None and others:
                mine.grad.div_(len(batches))
        return list(losses), list(offsets)

    def _differentiate_one(
        self, network: GraphNetwork, lessons: Lessons, renewed: bool
    ) -> tuple[DistillationLoss, Tensor]:
        with torch.autocast("cpu", self._amp_dtype, enabled=self._amp_dtype is not None):
            parameters, values = _outputs(network, lessons.leaves, lessons.along)
        masks, teacher, taught = lessons.masks, lessons.parameters, lessons.values
        if lessons.along is not None and lessons.along.valid is not None:
            rows = torch.from_numpy(lessons.along.valid)
            masks = None if masks is None else masks[rows]
            parameters, values, teacher, taught = (
                each[rows] for each in (parameters, values, teacher, taught)
            )
        offset = torch.zeros(())
        if renewed and self._value_cost and values.requires_grad:
            offset = (taught - values.detach()).mean()
        scale = self._value_scale
        loss = distillation_loss(
            student=self._distribution(parameters, masks),
            values=scale * (values + offset),
            teacher=self._distribution(teacher, masks),
            teacher_values=scale * taught,
            value_cost=self._value_cost,
            entropy_cost=self._entropy_cost,
        )
        loss.total.backward()  # type: ignore[no-untyped-call]
        return loss._replace(total=loss.total.detach()), offset

    @property
    def _value_scale(self) -> Tensor:
        return 1.0 / self._value_std

    def take_statistics(self, tensors: Tensors) -> None:
        """Normalise observations and values as the policy with these tensors does.

        Raises:
            KeyError: the policy does not normalise what the student does.
        """
        for layer in self.network.layers:
            if layer.is_normaliser:
                for name in layer.tensor_names:
                    given = torch.from_numpy(np.array(tensors[name]))
                    self.network.get_parameter(name).copy_(given)

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Copies of all weights, in the graph's names and order."""
        weights = tensors_of(self.network)
        return {name: weights[name] for name in self._graph.tensors(with_value=True)}


def _outputs(network: nn.Module, leaves: Leaves, along: Visited | None) -> tuple[Tensor, Tensor]:
    """Parameters and values, float32, along sequences; zeros where the network has no value."""
    if along is None:
        parameters, values = network(*leaves)
    else:
        assert isinstance(network, GraphNetwork)  # it knows its states
        found = network_outputs(network, along, leaves)
        parameters = found[network.graph.output]
        values = found[VALUE].squeeze(1) if VALUE in found else None
    parameters = parameters.float()
    return parameters, parameters.new_zeros(len(parameters)) if values is None else values.float()


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None  # after a backward pass through it
    return parameter.grad
