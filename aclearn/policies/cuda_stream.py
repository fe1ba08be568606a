"""A CUDA stream with pinned memory, and the capture of steps as CUDA graphs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

_LOGGER = logging.getLogger(__name__)

#: Runs of a step before its capture: in the first ones libraries choose kernels, allocate memory.
_WARM_UPS = 3
#: A process may capture one graph at a time: a capture starts with a wait for the whole device,
#: which would break another one.
_CAPTURING = threading.Lock()


class CudaStream:
    """A new stream on a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # One pool for the graphs of all batch sizes: they run in turn in one stream, and outputs
        # are copied out before the next graph starts.
        self._pool = torch.cuda.graph_pool_handle()

    def scope(self) -> AbstractContextManager[object]:
        """Operations enqueued within go into the stream."""
        return torch.cuda.stream(self._stream)

    def host_memory(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Page-locked memory, which the device accesses directly."""
        return torch.zeros(shape, dtype=dtype, pin_memory=True)

    def capture(
        self, step: Callable[[], None], generators: Iterable[torch.Generator] = ()
    ) -> Callable[[], object]:
        """A CUDA graph of the step, which may draw from the generators.

        Raises:
            RuntimeError: the step cannot be captured, or memory is short.
        """
        with _CAPTURING:
            for _ in range(_WARM_UPS):
                step()
            graph = torch.cuda.CUDAGraph()
            for generator in generators:
                graph.register_generator_state(generator)
            # thread_local: other threads compute and copy in their streams meanwhile
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                step()
        return graph.replay

    def wait(self) -> None:
        """Wait until all enqueued operations have ended."""
        self._stream.synchronize()


def captured(
    stream: CudaStream | None,
    step: Callable[[], None],
    *,
    what: str,
    generators: Iterable[torch.Generator] = (),
) -> Callable[[], object]:
    """A CUDA graph of the step; the step itself without a stream, or where it cannot be captured.

    Args:
        stream: the current one; the step runs in it some times before.
        step: of fixed memory, without a wait for the device.
    """
    if stream is None:
        return step
    try:
        return stream.capture(step, generators)
    except RuntimeError as error:
        _LOGGER.warning(
            "event=capture_failed device=%s what=%r reason=%r detail='it runs operation by "
            "operation from now on, slower'",
            stream.device,
            what,
            str(error),
        )
        return step
