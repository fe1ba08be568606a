"""The trainer's weights in shared memory."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aclearn.config import Config
from aclearn.errors import EndpointError, SharingError
from aclearn.policies import Architecture
from aclearn.shared_weights import (
    FileDescriptorServer,
    HostMemory,
    SeqlockBuffer,
    SharedMemory,
)
from aclearn.wire import parse_endpoint
from services.role.torch_checks import predictor_computes_in_torch

if TYPE_CHECKING:
    import torch

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class PostedWeights:
    """A buffer and the server of its file descriptors.

    Attributes:
        buffer: gets the weights.
        endpoint: of the server, for the trainer's hello.
    """

    buffer: SeqlockBuffer
    endpoint: str
    fd_server: FileDescriptorServer

    def close(self) -> None:
        """Close both; processes that mapped the buffer keep it."""
        self.fd_server.close()
        self.buffer.close()


def allocator_for(config: Config, device: torch.device) -> Callable[[int], SharedMemory] | None:
    """Allocates the memory of a trainer's buffer; None if no role would read it.

    Args:
        config: of the run.
        device: of the learner.
    """
    if config.trainer.share_weights == "host":
        return HostMemory.create
    if config.trainer.share_weights == "auto" and device.type == "cuda" and _asks_a_gpu(config):
        from aclearn.shared_weights.cuda_memory import CudaMemory

        return partial(CudaMemory.create, device=device)
    return None


def _asks_a_gpu(config: Config) -> bool:
    """Whether a predictor may compute on a GPU."""
    return predictor_computes_in_torch(config) and config.predictor.device != "cpu"


def post_weights(
    allocate: Callable[[int], SharedMemory] | None, architecture: Architecture, monitor: str
) -> PostedWeights | None:
    """A trainer's buffer, and its server beside the run's other sockets; None if not possible.

    Args:
        allocate: allocates memory for a number of floats; None for no buffer.
        architecture: of the part that acts.
        monitor: its endpoint; the server needs a run whose sockets are files.
    """
    if allocate is None:
        return None
    address = parse_endpoint(monitor)
    if address.transport != "ipc":
        _LOGGER.info("event=weights_not_shared reason='the roles use tcp'")
        return None
    shapes = architecture.tensor_shapes()
    path = Path(address.path).parent / f"{uuid.uuid4().hex[:8]}.fds"
    buffer: SeqlockBuffer | None = None
    try:
        endpoint = str(parse_endpoint(f"ipc://{path}"))
        buffer = SeqlockBuffer(shapes, allocate(SeqlockBuffer.floats_needed(shapes)))
        return PostedWeights(
            buffer, endpoint, FileDescriptorServer(path, buffer.describe, buffer.share)
        )
    except (SharingError, EndpointError) as error:
        if buffer is not None:
            buffer.close()
        _LOGGER.warning("event=weights_not_shared reason=%r", str(error))
        return None
