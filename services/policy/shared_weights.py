"""The client of the trainer's shared weights, which it reads without requests."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from aclearn.errors import EndpointError, SharingError
from aclearn.policies import Architecture
from aclearn.rollout import Executable, PolicySnapshot
from aclearn.shared_weights import HostMemory, OpenMemory, SeqlockReader, request_fds
from aclearn.types import DEFAULT_POLICY, PolicyVersion
from aclearn.wire import Peer, parse_endpoint
from compress import PolicyRuntime
from services.role.requests import Requests, RetryPolicy

_LOGGER = logging.getLogger(__name__)

#: After five failed attempts to get a trainer's file descriptors, a role requests weights instead.
_RETRY = RetryPolicy(math.inf, retry_first_s=1.0, retry_most_s=1.0, most_failures=5)
#: Longest wait of each attempt.
_REQUEST_WITHIN_S = 0.2
#: Name of the buffer's address among a trainer's endpoints.
SHARED_WEIGHTS = "shared_weights"


def fd_server_of(endpoint: str, policy: str) -> Path:
    """The socket file from which roles get the memory of a policy's weights.

    Args:
        endpoint: of the trainer's shared weights.

    Raises:
        EndpointError: it is malformed.
    """
    path = Path(parse_endpoint(endpoint).path)
    return path if policy == DEFAULT_POLICY else path.with_name(f"{path.stem}-{policy}.fds")


class SharedWeightsClient:
    """The current trainer's buffer, if this role can map it.

    Args:
        place: where the role uses weights; see `SharedMemory.place`.
        policy: name of the policy.
    """

    def __init__(
        self,
        architecture: Architecture,
        place: str,
        open_memory: OpenMemory,
        load: Callable[[Mapping[str, Any]], Executable],
        *,
        policy: str = DEFAULT_POLICY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._shapes, self._place = architecture.tensor_shapes(), place
        self._open_memory, self._load, self._clock = open_memory, load, clock
        self._reader: SeqlockReader | None = None
        self._requests = Requests[str](_RETRY)

    @property
    def open(self) -> bool:
        """Whether there is a buffer; otherwise weights are requested."""
        return self._reader is not None

    def follow(self, trainer: Peer) -> None:
        """Close an earlier trainer's buffer, and open this one's at the next look."""
        self.close()
        endpoint = trainer.endpoints.get(SHARED_WEIGHTS)
        if endpoint is not None:
            try:
                fd_server = fd_server_of(endpoint, self._policy)
                self._requests.add(SHARED_WEIGHTS, fd_server, self._clock())
            except EndpointError as error:
                _say_not_shared(error)

    def newer_than(self, known: PolicyVersion) -> tuple[PolicyVersion, Mapping[str, Any]] | None:
        """A copy of the newest weights, in `place`, if they are newer than `known`."""
        for _, fd_server in self._requests.due(self._clock()):
            self._request(fd_server)
        return None if self._reader is None else self._reader.newer_than(known)

    def load(self, at: PolicyVersion, tensors: Mapping[str, Any]) -> PolicySnapshot:
        """Prepare what `newer_than` found to act.

        Raises:
            RefusedTensors: the weights are invalid.
        """
        return PolicySnapshot(self._load(tensors), at)

    def close(self) -> None:
        """Close the buffer."""
        self._requests.cancel(SHARED_WEIGHTS)
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _request(self, fd_server: Path) -> None:
        try:
            description, fds = request_fds(fd_server, timeout_s=_REQUEST_WITHIN_S)
        except SharingError as error:
            # a trainer that is starting answers late; a busy one refuses some
            self._requests.tried(SHARED_WEIGHTS, self._clock(), sent=False)
            if SHARED_WEIGHTS not in self._requests:
                _say_not_shared(error)
            return
        self._requests.answered(SHARED_WEIGHTS, self._clock())
        try:
            self._reader = SeqlockReader(
                description,
                fds,
                shapes=self._shapes,
                place=self._place,
                open_memory=self._open_memory,
            )
        except SharingError as error:
            _say_not_shared(error)
        else:
            _LOGGER.info("event=weights_shared place=%s", self._place)


def _say_not_shared(error: Exception) -> None:
    _LOGGER.warning("event=weights_not_shared reason=%r", str(error))


def shared_weights_of(
    share: str,
    architecture: Architecture,
    runtime: PolicyRuntime,
    kind: str,
    policy: str = DEFAULT_POLICY,
) -> SharedWeightsClient | None:
    """The shared weights for a runtime that `make_runtime` made of `kind`; None: only requests.

    `share` is `trainer.share_weights`.
    """
    if share == "host":
        return SharedWeightsClient(architecture, "host", HostMemory, runtime.load, policy=policy)
    if share == "auto" and kind != "onnx":
        # imported here: a process that runs ONNX only never loads torch
        from compress.runtimes.cuda_runtime import CudaGraphRuntime

        if isinstance(runtime, CudaGraphRuntime):
            from aclearn.shared_weights.cuda_memory import CudaMemory, place_of

            open_memory = partial(CudaMemory.open, device=runtime.device)
            place = place_of(runtime.device)
            return SharedWeightsClient(
                architecture, place, open_memory, runtime.load_on_device, policy=policy
            )
    return None
