"""Inference on GPUs: captured steps of fixed batch sizes on weights that change in place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.policies.cuda_stream import CudaStream, captured
from aclearn.types import State
from compress.graphs.graph_network import GraphNetwork, OneStep
from compress.graphs.policy_graph import PolicyGraph
from compress.runtimes.torch_runtime import channels_last

#: Most threads that compute at a time. torch has 32 streams per device; beyond, runners would share
#: streams and capture each other's operations.
_MOST_RUNNERS = 16
#: Longest wait of a thread for a runner, in seconds; a batch takes less.
_RUNNER_WITHIN_S = 30.0

#: One version's weights on the device, in the order of `PolicyGraph.tensors`; never written.
DeviceWeights = tuple[Tensor, ...]


def batch_sizes(most: int) -> tuple[int, ...]:
    """Batch sizes that batches of up to `most` rows are padded to: powers of two, and `most`.

    Raises:
        ValueError: `most` is less than 1.
    """
    if most < 1:
        raise ValueError(f"most: expected at least 1, got {most}")
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return tuple(sizes)


def padded_size(count: int, sizes: tuple[int, ...]) -> int | None:
    """The smallest of the ascending `sizes` that holds `count` rows; None if none does."""
    return next((size for size in sizes if size >= count), None)


@dataclass(frozen=True, eq=False)
class _Step:
    """Memory of one batch size, and its computation.

    In are each leaf and part of the state, `[size, *shape]`; out are the parameters `[size, P]` and
    each part of the next state.
    """

    host_in: Sequence[Tensor]
    device_in: Sequence[Tensor]
    device_out: Sequence[Tensor]
    host_out: Sequence[Tensor]
    run: Callable[[], object]


class CudaGraphRunner:
    """One thread's stream on the device, with its own parameters that versions are copied into.

    Args:
        graph: fp32.
        sizes: ascending batch sizes that are captured; larger batches are not captured.
        uncapturable: set after the first failure of any runner of the policy; from then on steps
            run operation by operation.
    """

    def __init__(
        self,
        graph: PolicyGraph,
        stream: CudaStream,
        *,
        sizes: tuple[int, ...],
        uncapturable: threading.Event,
        amp_dtype: torch.dtype | None,
    ) -> None:
        self._architecture, self._state, self._stream = graph.architecture, graph.state, stream
        self._sizes, self._uncapturable, self._amp_dtype = sizes, uncapturable, amp_dtype
        self._steps: dict[int, _Step] = {}
        with stream.scope():
            network = GraphNetwork(graph, with_value=False).eval().to(stream.device)
            if self._architecture.convolves:
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._network = OneStep(network)
        named = dict(network.named_parameters())
        self._parameters: list[Tensor] = [named[name] for name in graph.tensors()]
        self._loaded: DeviceWeights | None = None

    def step(
        self, weights: DeviceWeights, observations: Mapping[str, NDArray[Any]], state: State = ()
    ) -> tuple[NDArray[np.float32], ...]:
        """Parameters `[N, P]` and next states float32 of observations, leaf → `[N, *shape]`.

        Args:
            state: each part `[N, n]`; `()` stands for zeros.

        Raises:
            ValueError: observations of another shape than the architecture's.
            TypeError: of another dtype.
        """
        leaves = self._architecture.observation
        count = len(observations[next(iter(leaves))])
        for name, leaf in leaves.items():
            if observations[name].shape != (count, *leaf.shape):
                raise ValueError(
                    f"observations: {name}: expected [{count}, {leaf.shape}], "
                    f"got {observations[name].shape}"
                )
        size = padded_size(count, self._sizes)
        with self._stream.scope(), torch.inference_mode():
            try:
                self._load(weights)
                step = self._make_step(count) if size is None else self._captured_step(size)
                given: list[Any] = [observations[name] for name in leaves]
                given += state or [np.float32(0.0)] * len(self._state)
                for array, host, device in zip(given, step.host_in, step.device_in, strict=True):
                    np.copyto(host.numpy()[:count], array, casting="equiv")
                    # the remaining rows keep old numbers; their outputs are discarded
                    device[:count].copy_(host[:count], non_blocking=True)
                step.run()
                for host, device in zip(step.host_out, step.device_out, strict=True):
                    host[:count].copy_(device[:count], non_blocking=True)
            finally:
                # also after an error: the next batch writes into memory that copies may still read
                self._stream.wait()
        return tuple(host[:count].numpy().copy() for host in step.host_out)

    def _load(self, weights: DeviceWeights) -> None:
        """Copy a version into the parameters, in place: captured steps read this memory only."""
        if self._loaded is not weights:
            self._loaded = None
            torch._foreach_copy_(self._parameters, list(weights))
            self._loaded = weights  # kept, so that its memory outlives the copy

    def _captured_step(self, size: int) -> _Step:
        if size not in self._steps:
            self._steps[size] = self._make_step(size, replayed=True)
        return self._steps[size]

    def _make_step(self, size: int, *, replayed: bool = False) -> _Step:
        device, host = self._stream.device, self._stream.host_memory
        given = [
            ((size, *leaf.shape), getattr(torch, leaf.dtype))
            for leaf in self._architecture.observation.values()
        ]
        given += [((size, units), torch.float32) for units in self._state]
        made = [(size, units) for units in (self._architecture.parameter_count, *self._state)]
        device_in = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in given]
        device_out = [torch.zeros(shape, device=device) for shape in made]

        def run() -> None:
            for out, found in zip(device_out, self._forward(*device_in), strict=True):
                out.copy_(found)

        return _Step(
            [host(*size_of) for size_of in given],
            device_in,
            device_out,
            [host(shape, torch.float32) for shape in made],
            self._captured(run, size) if replayed else run,
        )

    def _captured(self, run: Callable[[], None], size: int) -> Callable[[], object]:
        if self._uncapturable.is_set():
            return run
        step = captured(self._stream, run, what=f"inference of {size} rows")
        if step is run:
            self._uncapturable.set()
        return step

    def _forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        if self._architecture.convolves:
            given = tuple(map(channels_last, given))
        # without the cache, whose tensors would outlive their capture
        with torch.autocast(
            self._stream.device.type,
            self._amp_dtype,
            enabled=self._amp_dtype is not None,
            cache_enabled=False,
        ):
            made: tuple[Tensor, ...] = self._network(*given)
        return made


class CudaGraphRunnerPool:
    """A policy's runners, made when needed: one for each thread that computes at the same time.

    Args:
        most: bound of their number; when all are busy, a thread waits for one.
    """

    def __init__(self, make: Callable[[], CudaGraphRunner], *, most: int = _MOST_RUNNERS) -> None:
        self._make = make
        self._free = threading.BoundedSemaphore(most)
        self._idle: list[CudaGraphRunner] = []

    @contextmanager
    def borrow(self) -> Iterator[CudaGraphRunner]:
        """A runner for the calling thread alone.

        Raises:
            TimeoutError: none became free.
        """
        if not self._free.acquire(timeout=_RUNNER_WITHIN_S):
            raise TimeoutError(f"inference: no runner became free within {_RUNNER_WITHIN_S} s")
        try:
            try:
                runner = self._idle.pop()  # the last one: its steps are captured already
            except IndexError:
                runner = self._make()
            try:
                yield runner
            finally:
                self._idle.append(runner)
        finally:
            self._free.release()
