"""The torch runtimes on the CPU: for artifacts, and where bf16 beats ONNX Runtime's fp32."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.policies import Architecture
from compress.graph import PolicyGraph, Tensors, check_tensors
from compress.network import GraphNetwork

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class TorchExecutable:
    """A policy graph as a torch module with one version's tensors.

    Args:
        graph: fp32, fp16 or bf16; the latter two compute in that precision.
        tensors: as `graph.tensors()` says; copied.
        amp_dtype: torch.bfloat16 or torch.float16 for autocast of an fp32 graph, None for none.
        script: trace it into a TorchScript graph with frozen weights.
    """

    def __init__(
        self,
        graph: PolicyGraph,
        tensors: Tensors,
        *,
        amp_dtype: torch.dtype | None = None,
        script: bool = False,
    ) -> None:
        self._amp_dtype = amp_dtype
        self._convolutional = graph.architecture.convolves
        network = GraphNetwork(graph, with_value=False).load(tensors)
        network.to(_DTYPES[graph.precision])
        if self._convolutional:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._module: nn.Module = network.eval()
        if script:
            self._module = _scripted(network, graph.architecture)

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`."""
        # a copy: torch refuses to promise not to write into the read-only views of a message
        x = torch.from_numpy(np.array(observations))
        if self._convolutional:
            x = x.contiguous(memory_format=torch.channels_last)
        with (
            torch.inference_mode(),
            torch.autocast("cpu", self._amp_dtype, enabled=self._amp_dtype is not None),
        ):
            logits = self._module(x)
        logits = logits[0] if isinstance(logits, tuple) else logits
        result: NDArray[np.float32] = logits.float().numpy()
        return result


@contextmanager
def one_thread() -> Iterator[None]:
    """In this block torch computes with one thread of the process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _LogitsOnly(nn.Module):
    """What TorchScript can trace: one tensor in, one out."""

    def __init__(self, network: GraphNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, observations: Tensor) -> Tensor:
        logits: Tensor = self.network(observations)[0]
        return logits


def _scripted(network: GraphNetwork, architecture: Architecture) -> nn.Module:
    dtype = torch.uint8 if architecture.observation_dtype == "uint8" else torch.float32
    example = torch.zeros((2, *architecture.observation_shape), dtype=dtype)
    with warnings.catch_warnings(), torch.no_grad():
        # TorchScript is deprecated upstream; who chose this runtime has chosen it
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(  # type: ignore[no-untyped-call]
            _LogitsOnly(network).eval(), example, check_trace=False
        )
        frozen: nn.Module = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    return frozen


class TorchPolicy:
    """A policy in torch: channels-last, under bf16 autocast where `amp_dtype` says so.

    Args:
        architecture: what the weights must fit, those of the value included.
        amp_dtype: torch.bfloat16 or torch.float16 for autocast, None for fp32.
    """

    def __init__(self, architecture: Architecture, *, amp_dtype: torch.dtype | None = None) -> None:
        self._graph, self._amp_dtype = PolicyGraph(architecture), amp_dtype
        self._executable: TorchExecutable | None = None

    def swap(self, tensors: Tensors) -> None:
        """Replace the network by one with these weights, in one reference assignment.

        Raises:
            RefusedTensors: they do not fit or are not finite; the old network goes on.
        """
        check_tensors(self._graph, tensors, with_value=True)
        self._executable = TorchExecutable(self._graph, tensors, amp_dtype=self._amp_dtype)

    @property
    def executable(self) -> TorchExecutable:
        """The network with the weights of the last swap; needs a `swap` before."""
        if self._executable is None:
            raise RuntimeError("no weights yet: call swap first")
        return self._executable

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`; needs a `swap` before."""
        return self.executable.logits(observations)
