"""The client of the trainer's shared weights: reads them from memory instead of asking."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aclearn.errors import EndpointError, SharingError
from aclearn.policies import Architecture
from aclearn.shared_weights import (
    OpenMemory,
    SeqlockReader,
    request_fds,
)
from aclearn.types import PolicyVersion
from aclearn.wire import Peer, parse_endpoint

_LOGGER = logging.getLogger(__name__)

#: How often a role asks for a trainer's file descriptors before it asks for weights for good, with
#: the pause between, and how long it may wait each time.
_REQUESTS, _REQUEST_EVERY_S, _REQUEST_WITHIN_S = 5, 1.0, 0.2
#: Name of the buffer's address among a trainer's endpoints.
SHARED_WEIGHTS = "shared_weights"


class SharedWeightsClient:
    """The buffer of the trainer that the monitor names, where this role can map it.

    Args:
        architecture: of the policy.
        place: where the role uses weights; see `SharedMemory.place`.
        open_memory: maps memory of that place.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        architecture: Architecture,
        place: str,
        open_memory: OpenMemory,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shapes, self._place = architecture.tensor_shapes(), place
        self._open_memory, self._clock = open_memory, clock
        self._reader: SeqlockReader | None = None
        self._fd_server: Path | None = None  # where to ask next
        self._requests, self._next_request = 0, 0.0

    @property
    def open(self) -> bool:
        """Whether there is a buffer to read; else weights are asked for."""
        return self._reader is not None

    def follow(self, trainer: Peer) -> None:
        """Leave the buffer of an earlier trainer, and ask for this one's at the next look."""
        self.close()
        endpoint = trainer.endpoints.get(SHARED_WEIGHTS)
        if endpoint is not None:
            try:
                self._fd_server = Path(parse_endpoint(endpoint).path)
            except EndpointError as error:
                self._give_up(error)
        self._requests, self._next_request = 0, self._clock()

    def newer_than(self, known: PolicyVersion) -> tuple[PolicyVersion, Mapping[str, Any]] | None:
        """A copy of the newest weights, in the place, if they are newer than `known`."""
        if self._fd_server is not None and self._clock() >= self._next_request:
            self._request(self._fd_server)
        return None if self._reader is None else self._reader.newer_than(known)

    def close(self) -> None:
        """Leave the buffer."""
        self._fd_server = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _request(self, fd_server: Path) -> None:
        self._requests += 1
        self._next_request = self._clock() + _REQUEST_EVERY_S
        try:
            description, fds = request_fds(fd_server, timeout_s=_REQUEST_WITHIN_S)
        except SharingError as error:
            # a trainer that is just starting answers late, one that everybody asks turns some away
            if self._requests >= _REQUESTS:
                self._give_up(error)
            return
        try:
            self._reader = SeqlockReader(
                description,
                fds,
                shapes=self._shapes,
                place=self._place,
                open_memory=self._open_memory,
            )
        except SharingError as error:
            self._give_up(error)
        else:
            self._fd_server = None
            _LOGGER.info("event=weights_shared place=%s", self._place)

    def _give_up(self, error: Exception) -> None:
        self._fd_server = None
        _LOGGER.warning("event=weights_not_shared reason=%r", str(error))
