"""The trainer's weights in shared memory."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aclearn.config import Config
from aclearn.errors import EndpointError, SharingError
from aclearn.learning import PublishedWeights
from aclearn.policies import Architecture
from aclearn.shared_weights import HostMemory, SharedMemory
from aclearn.wire import parse_endpoint
from services.policy.shared_weights import fd_server_of
from services.role.torch_checks import predictor_computes_in_torch

if TYPE_CHECKING:
    import torch

_LOGGER = logging.getLogger(__name__)


def allocator_for(config: Config, device: torch.device) -> Callable[[int], SharedMemory] | None:
    """Allocates the memory of a trainer's weights; None if no role would read it."""
    share = config.trainer.share_weights
    if share == "host":
        return HostMemory.create
    asks_a_gpu = predictor_computes_in_torch(config) and config.predictor.device != "cpu"
    if share == "auto" and device.type == "cuda" and asks_a_gpu:
        from aclearn.shared_weights.cuda_memory import CudaMemory

        return partial(CudaMemory.create, device=device)
    return None


def share_weights(
    weights: Mapping[str, tuple[PublishedWeights, Architecture]],
    allocate: Callable[[int], SharedMemory] | None,
    monitor: str,
) -> str | None:
    """Share a trainer's weights; the endpoint for its hello, None if that is not possible.

    Each policy has memory of its own, at the path that `fd_server_of` gives.

    Args:
        weights: policy → its weights, which are not published yet, and the network that acts.
        allocate: allocates memory for a number of floats; None: do not share.
        monitor: its endpoint; the run's sockets must be files.
    """
    if allocate is None:
        return None
    address = parse_endpoint(monitor)
    if address.transport != "ipc":
        _LOGGER.info("event=weights_not_shared reason='the roles use tcp'")
        return None
    path = Path(address.path).parent / f"{uuid.uuid4().hex[:8]}.fds"
    try:
        endpoint = str(parse_endpoint(f"ipc://{path}"))
        for policy, (published, acting) in weights.items():
            published.share(acting.tensor_shapes(), allocate, fd_server_of(endpoint, policy))
    except (SharingError, EndpointError) as error:
        for published, _ in weights.values():
            published.close()  # all policies or none
        _LOGGER.warning("event=weights_not_shared reason=%r", str(error))
        return None
    return endpoint
