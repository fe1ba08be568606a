"""The torch runtimes on the CPU: for artifacts, and for bf16 where that is faster than ONNX."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.policies import Architecture
from aclearn.policies.devices import cpu_has
from aclearn.policies.network import load_tensors
from aclearn.types import PolicyOutput, State
from compress.graphs.graph_network import GraphNetwork, OneStep, example_leaves
from compress.graphs.policy_graph import (
    PolicyGraph,
    Precision,
    Tensors,
    check_tensors,
    stored_as_float32,
)


class TorchExecutable:
    """A policy graph as a torch module with one version's tensors.

    Args:
        graph: fp32, fp16 or bf16; computed in `dtype_of` its precision.
        tensors: by the names of `graph.tensors()`; copied.
        amp_dtype: torch.bfloat16 or torch.float16 for autocast of an fp32 graph, None for none.
        traced: result of `trace(graph)`, to run in TorchScript with frozen weights; None runs the
            module itself.
    """

    def __init__(
        self,
        graph: PolicyGraph,
        tensors: Tensors,
        *,
        amp_dtype: torch.dtype | None = None,
        traced: bytes | None = None,
    ) -> None:
        self._amp_dtype = amp_dtype
        self._leaves = tuple(graph.architecture.observation)
        self._convolutional = graph.architecture.convolves
        self._state = graph.state
        self._module: nn.Module
        if traced is None:
            self._module = OneStep(_empty_network(graph).load(tensors))
        else:
            self._module = _frozen(traced, graph, tensors)

    def step(
        self, observations: Mapping[str, NDArray[Any]], state: State = ()
    ) -> PolicyOutput[NDArray[np.float32]]:
        """The policy's output for observations, leaf → `[B, *shape]`, and state `[B, n]` each."""
        # copies: torch warns of the read-only views of a message
        leaves = [torch.from_numpy(np.array(observations[name])) for name in self._leaves]
        if self._convolutional:
            leaves = [channels_last(leaf) for leaf in leaves]
        rows = len(leaves[0])
        before = [
            torch.from_numpy(np.array(state[i])) if state else torch.zeros(rows, units)
            for i, units in enumerate(self._state)
        ]
        with (
            torch.inference_mode(),
            torch.autocast("cpu", self._amp_dtype, enabled=self._amp_dtype is not None),
        ):
            parameters, *after = self._module(*leaves, *before)
        return PolicyOutput(
            parameters.float().numpy(), state=tuple(part.float().numpy() for part in after)
        )


def channels_last(x: Tensor) -> Tensor:
    """Images `[N, C, H, W]` in channels-last memory, which convolutions read faster."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def dtype_of(precision: Precision) -> torch.dtype:
    """The dtype of a graph's computation: half precision where this CPU has it, else fp32.

    Emulated half precision took six times as long as fp32 in eager torch, and eighty times in
    TorchScript.
    """
    if precision == "bf16" and cpu_has("bf16"):
        return torch.bfloat16
    if precision == "fp16" and cpu_has("fp16"):
        return torch.float16
    return torch.float32


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread in this block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def trace(graph: PolicyGraph) -> bytes:
    """The graph in TorchScript, serialised, with zeros for weights; for all of its versions.

    A process never frees a trace or its frozen modules, whose weights are constants; tracing each
    version would leak them. A loaded copy is freed with its executable.
    """
    network, serialised = _empty_network(graph), io.BytesIO()
    with _torchscript_chosen():
        for parameter in network.parameters():
            parameter.zero_()
        leaves = example_leaves(graph.architecture.observation)
        traced = torch.jit.trace(  # type: ignore[no-untyped-call]
            OneStep(network).eval(),
            (*leaves, *(torch.zeros(len(leaves[0]), units) for units in graph.state)),
            check_trace=False,
        )
        torch.jit.save(traced, serialised)
    return serialised.getvalue()


def _frozen(traced: bytes, graph: PolicyGraph, tensors: Tensors) -> nn.Module:
    """The traced graph with these tensors as constants."""
    weights = {f"network.{name}": stored_as_float32(tensors[name]) for name in graph.tensors()}
    with _torchscript_chosen():
        module = torch.jit.load(io.BytesIO(traced))  # type: ignore[no-untyped-call]
        load_tensors(module, weights)
        # `optimize_for_inference` on top doubled the time of batches: it drops channels-last
        frozen: nn.Module = torch.jit.freeze(module)
    return frozen


def _empty_network(graph: PolicyGraph) -> GraphNetwork:
    """The graph's module in its dtype and memory layout, without weights."""
    network = GraphNetwork(graph, with_value=False)
    network.to(dtype_of(graph.precision))
    for layer in network.layers:
        if layer.is_normaliser:
            network.get_submodule(layer.name).float()
    if graph.architecture.convolves:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval()


@contextmanager
def _torchscript_chosen() -> Iterator[None]:
    """No gradients and no deprecation warnings of TorchScript in this block."""
    with warnings.catch_warnings(), torch.no_grad():
        # the configuration asked for this runtime
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class TorchRuntime:
    """Makes executables of the uncompressed policy's weights, under autocast where asked."""

    def __init__(self, architecture: Architecture, *, amp_dtype: torch.dtype | None = None) -> None:
        self._graph, self._amp_dtype = PolicyGraph(architecture), amp_dtype

    def load(self, tensors: Tensors) -> TorchExecutable:
        """See `PolicyRuntime.load`."""
        check_tensors(self._graph, tensors, with_value=True)
        return TorchExecutable(self._graph, tensors, amp_dtype=self._amp_dtype)
