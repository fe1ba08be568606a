"""Both ends of the trainer's board of weights: who posts on it, and who reads instead of asking."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aclearn.errors import EndpointError, SharingError
from aclearn.policies import Architecture
from aclearn.shared_weights import (
    OpenMemory,
    SeqlockReader,
    knock,
)
from aclearn.types import PolicyVersion
from aclearn.wire import Peer, parse_endpoint

if TYPE_CHECKING:
    pass

_LOGGER = logging.getLogger(__name__)

#: How often a role knocks for a trainer's board before it asks for weights for good, with what
#: pause between, and how long it may wait each time.
_KNOCKS, _KNOCK_EVERY_S, _KNOCK_WITHIN_S = 5, 1.0, 0.2
#: Name of the board's address among a trainer's endpoints.
BOARD = "board"


# ---- the trainer's end --------------------------------------------------------------------------


# ---- the reader's end ---------------------------------------------------------------------------


class SharedWeightsClient:
    """The board of the trainer that the monitor names, where this role can map it.

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
        self._door: Path | None = None  # where to knock next
        self._knocks, self._next_knock = 0, 0.0

    @property
    def open(self) -> bool:
        """Whether there is a board to read; else weights are asked for."""
        return self._reader is not None

    def follow(self, trainer: Peer) -> None:
        """Leave the board of an earlier trainer, and knock for this one's at the next look."""
        self.close()
        endpoint = trainer.endpoints.get(BOARD)
        if endpoint is not None:
            try:
                self._door = Path(parse_endpoint(endpoint).path)
            except EndpointError as error:
                self._give_up(error)
        self._knocks, self._next_knock = 0, self._clock()

    def newer_than(self, known: PolicyVersion) -> tuple[PolicyVersion, Mapping[str, Any]] | None:
        """A copy of the newest weights, in the place, if they are newer than `known`."""
        if self._door is not None and self._clock() >= self._next_knock:
            self._knock(self._door)
        return None if self._reader is None else self._reader.newer_than(known)

    def close(self) -> None:
        """Leave the board."""
        self._door = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _knock(self, door: Path) -> None:
        self._knocks += 1
        self._next_knock = self._clock() + _KNOCK_EVERY_S
        try:
            description, fds = knock(door, timeout_s=_KNOCK_WITHIN_S)
        except SharingError as error:
            # a trainer that is just starting answers late, one that everybody asks turns some away
            if self._knocks >= _KNOCKS:
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
            self._door = None
            _LOGGER.info("event=weights_shared place=%s", self._place)

    def _give_up(self, error: Exception) -> None:
        self._door = None
        _LOGGER.warning("event=weights_not_shared reason=%r", str(error))
