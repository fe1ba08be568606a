"""Both ends of the trainer's board of weights: who posts on it, and who reads instead of asking."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aclearn.config import Config
from aclearn.errors import EndpointError, SharingError
from aclearn.policies import Architecture, PolicyVersion
from aclearn.sharing import (
    BoardReader,
    Door,
    HostMemory,
    OpenMemory,
    SharedMemory,
    WeightBoard,
    knock,
)
from aclearn.wire import Peer, parse_endpoint

if TYPE_CHECKING:
    import torch

_LOGGER = logging.getLogger(__name__)

#: Name of the board's address among a trainer's endpoints.
BOARD = "board"


# ---- the trainer's end --------------------------------------------------------------------------


@dataclass(frozen=True)
class PostedWeights:
    """A board and the door at which others get it.

    Attributes:
        board: where the trainer posts.
        endpoint: of the door, for the trainer's hello.
    """

    board: WeightBoard
    endpoint: str
    door: Door

    def close(self) -> None:
        """Take both away; who has mapped the board keeps it."""
        self.door.close()
        self.board.close()


def allocator_for(config: Config, device: torch.device) -> Callable[[int], SharedMemory] | None:
    """What makes the memory of a trainer's board; None where nobody would read it.

    Args:
        config: of the run.
        device: that the trainer learns on.
    """
    if config.trainer.share_weights == "host":
        return HostMemory.create
    if config.trainer.share_weights == "auto" and device.type == "cuda" and _asks_a_gpu(config):
        from aclearn.sharing.cuda_memory import CudaMemory

        return partial(CudaMemory.create, device=device)
    return None


def _asks_a_gpu(config: Config) -> bool:
    """Whether there are predictors that may compute on one."""
    predictor = config.predictor
    return (
        config.actors.inference == "predictor"
        and not config.compressor.chain
        and predictor.runtime != "onnx"
        and predictor.device != "cpu"
    )


def post_weights(
    allocate: Callable[[int], SharedMemory] | None, architecture: Architecture, monitor: str
) -> PostedWeights | None:
    """A board for a trainer, and its door beside the run's other sockets; None where none can be.

    Args:
        allocate: makes memory of so many numbers; None where no board is wanted.
        architecture: of the policy.
        monitor: its endpoint; only a run whose sockets are files has a place for the door.
    """
    address = parse_endpoint(monitor)
    if allocate is None or address.transport != "ipc":
        return None
    shapes = architecture.tensor_shapes()
    try:
        board = WeightBoard(shapes, allocate(WeightBoard.floats_needed(shapes)))
        path = Path(address.path).parent / f"{uuid.uuid4().hex[:8]}.door"
        endpoint = str(parse_endpoint(f"ipc://{path}"))
        door = Door(path, board.describe, board.share)
    except (SharingError, EndpointError) as error:
        _LOGGER.warning("event=weights_not_shared reason=%r", str(error))
        return None
    return PostedWeights(board, endpoint, door)


# ---- the reader's end ---------------------------------------------------------------------------


class BoardLink:
    """The board of the trainer that the monitor names, where this role can map it.

    Args:
        architecture: of the policy.
        place: where the role uses weights; see `SharedMemory.place`.
        open_memory: maps memory of that place.
    """

    def __init__(self, architecture: Architecture, place: str, open_memory: OpenMemory) -> None:
        self._shapes, self._place = architecture.tensor_shapes(), place
        self._open_memory = open_memory
        self._reader: BoardReader | None = None

    @property
    def open(self) -> bool:
        """Whether there is a board to read; else weights are asked for."""
        return self._reader is not None

    def follow(self, trainer: Peer) -> None:
        """Leave the board of an earlier trainer and take this one's, if it has one for us."""
        self.close()
        endpoint = trainer.endpoints.get(BOARD)
        if endpoint is None:
            return
        try:
            description, fds = knock(Path(parse_endpoint(endpoint).path))
            self._reader = BoardReader(
                description,
                fds,
                shapes=self._shapes,
                place=self._place,
                open_memory=self._open_memory,
            )
        except (SharingError, EndpointError) as error:
            _LOGGER.warning("event=weights_not_shared reason=%r", str(error))
        else:
            _LOGGER.info("event=weights_shared place=%s", self._place)

    def newer_than(self, known: PolicyVersion) -> tuple[PolicyVersion, Mapping[str, Any]] | None:
        """A copy of the newest weights, in the place, if they are newer than `known`."""
        return None if self._reader is None else self._reader.newer_than(known)

    def close(self) -> None:
        """Leave the board."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
