"""Inference on GPUs: captured steps of fixed batch sizes on weights that change in place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.policies.cuda_stream import CudaStream, captured
from compress.graphs.graph_network import GraphNetwork
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
    """Memory of one batch size, leaf → `[size, *shape]` in, `[size, P]` out; its computation."""

    host_in: Mapping[str, Tensor]
    device_in: Mapping[str, Tensor]
    device_out: Tensor
    host_out: Tensor
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
        self._architecture, self._stream = graph.architecture, stream
        self._sizes, self._uncapturable, self._amp_dtype = sizes, uncapturable, amp_dtype
        self._steps: dict[int, _Step] = {}
        with stream.scope():
            self._network = GraphNetwork(graph, with_value=False).eval().to(stream.device)
            if self._architecture.convolves:
                self._network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        named = dict(self._network.named_parameters())
        self._parameters: list[Tensor] = [named[name] for name in graph.tensors()]
        self._loaded: DeviceWeights | None = None

    def parameters(
        self, weights: DeviceWeights, observations: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.float32]:
        """Parameters `[N, P]` float32 of observations, leaf → `[N, *shape]`, under `weights`.

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
                for name, host in step.host_in.items():
                    np.copyto(host.numpy()[:count], observations[name], casting="equiv")
                    # the remaining rows keep old numbers; their outputs are discarded
                    step.device_in[name][:count].copy_(host[:count], non_blocking=True)
                step.run()
                step.host_out[:count].copy_(step.device_out[:count], non_blocking=True)
            finally:
                # also after an error: the next batch writes into memory that copies may still read
                self._stream.wait()
        return step.host_out[:count].numpy().copy()

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
        device, count = self._stream.device, self._architecture.parameter_count
        leaves = {
            name: ((size, *leaf.shape), getattr(torch, leaf.dtype))
            for name, leaf in self._architecture.observation.items()
        }
        device_in = {
            name: torch.zeros(shape, dtype=dtype, device=device)
            for name, (shape, dtype) in leaves.items()
        }
        device_out = torch.zeros((size, count), device=device)

        def run() -> None:
            device_out.copy_(self._forward(*device_in.values()))

        return _Step(
            {name: self._stream.host_memory(*size_of) for name, size_of in leaves.items()},
            device_in,
            device_out,
            self._stream.host_memory((size, count), torch.float32),
            self._captured(run, size) if replayed else run,
        )

    def _captured(self, run: Callable[[], None], size: int) -> Callable[[], object]:
        if self._uncapturable.is_set():
            return run
        step = captured(self._stream, run, what=f"inference of {size} rows")
        if step is run:
            self._uncapturable.set()
        return step

    def _forward(self, *observations: Tensor) -> Tensor:
        if self._architecture.convolves:
            observations = tuple(map(channels_last, observations))
        # without the cache, whose tensors would outlive their capture
        with torch.autocast(
            self._stream.device.type,
            self._amp_dtype,
            enabled=self._amp_dtype is not None,
            cache_enabled=False,
        ):
            output: Tensor = self._network(*observations)[0]
        return output


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
