"""A stream of a CUDA device with pinned memory, and steps captured as CUDA graphs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

#: Runs of a step before it is captured: libraries choose kernels and take memory in the first ones.
_WARM_UPS = 3
#: A process may capture one graph at a time, and a capture begins with a wait for the whole
#: device, which another capture would not survive.
_CAPTURING = threading.Lock()


class CudaStream:
    """A stream of its own on a CUDA device.

    Args:
        device: which.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # One pool for the graphs of all batch sizes: they run one after the other in one stream,
        # and the answers of one are copied out before the next begins.
        self._pool = torch.cuda.graph_pool_handle()

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self._device

    def scope(self) -> AbstractContextManager[object]:
        """What is enqueued within goes into the stream."""
        return torch.cuda.stream(self._stream)

    def host_memory(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Page-locked memory, which the device reads and writes by itself."""
        return torch.zeros(shape, dtype=dtype, pin_memory=True)

    def capture(self, step: Callable[[], None]) -> Callable[[], object]:
        """A CUDA graph of the step.

        Raises:
            RuntimeError: the step cannot be captured, or there is no memory for it.
        """
        with _CAPTURING:
            for _ in range(_WARM_UPS):
                step()
            graph = torch.cuda.CUDAGraph()
            # thread_local: other threads go on computing and copying in their streams meanwhile
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                step()
        return graph.replay

    def wait(self) -> None:
        """Until everything in the stream has ended."""
        self._stream.synchronize()
