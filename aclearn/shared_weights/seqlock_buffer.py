"""A buffer of weights: one process posts versions, others copy the newest.

The writer fills a few slots in turn, each with all weights of one version. A reader copies the
newest and then checks that the slot was not written meanwhile: a sequence lock (Lameter, "Effective
synchronization on Linux/NUMA systems", 2005). No process waits for another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import SharingError
from aclearn.shared_weights.memory import HostMemory, OpenMemory, SharedMemory
from aclearn.types import PolicyVersion, Shapes, flat_size, split_flat

if TYPE_CHECKING:
    from torch import Tensor

#: One being written, the newest, and one that may still be copied.
SLOTS = 3
#: The head has for each slot, as int64: a number that grows with each post (0 while the slot is
#: written), generation, version.
_FIELDS = 3
_ATTEMPTS = 3


def _head_view(memory: HostMemory, slots: int) -> NDArray[np.int64]:
    return memory.floats.view(np.int64).reshape(slots, _FIELDS)


class SeqlockBuffer:
    """The writer's end.

    Args:
        shapes: of the weights, by name, in the order in which they are posted.
        memory: of `floats_needed(shapes)` numbers; closed with the buffer.
    """

    def __init__(self, shapes: Shapes, memory: SharedMemory) -> None:
        self._shapes, self._memory = dict(shapes), memory
        self._floats = flat_size(shapes)
        self._head_memory = HostMemory.create(2 * SLOTS * _FIELDS)
        self._head = _head_view(self._head_memory, SLOTS)
        self._posts = 0

    @staticmethod
    def floats_needed(shapes: Shapes) -> int:
        """The number of floats in the memory of a buffer for such weights."""
        return SLOTS * flat_size(shapes)

    def post(self, at: PolicyVersion, flat: Tensor) -> None:
        """Make `flat` the newest weights, of a newer version; for one thread at a time.

        It has all weights, float32, one after another in the order of the buffer.
        """
        slot = self._posts % SLOTS
        self._head[slot, 0] = 0
        self._memory.write(slot * self._floats, flat)
        self._head[slot, 1], self._head[slot, 2] = at.generation, at.version
        self._posts += 1
        self._head[slot, 0] = self._posts

    def describe(self) -> bytes:
        """Place, slots and shapes, for `SeqlockReader`."""
        shapes = {name: list(shape) for name, shape in self._shapes.items()}
        said = {"place": self._memory.place, "slots": SLOTS, "shapes": shapes}
        return json.dumps(said).encode()

    def share(self) -> list[int]:
        """New file descriptors of the head and of the weights; the caller closes them."""
        head = self._head_memory.share()
        try:
            return [head, self._memory.share()]
        except BaseException:
            os.close(head)
            raise

    def close(self) -> None:
        """Unmap the buffer; readers keep it."""
        self._head = self._head.copy()  # the view would keep the mapping
        self._head_memory.close()
        self._memory.close()


class SeqlockReader:
    """The reader's end, in another process.

    Args:
        description: of `SeqlockBuffer.describe`; checked, since another process sent it.
        fds: of `SeqlockBuffer.share`; closed in any case.

    Raises:
        SharingError: the buffer has other weights or another place, or cannot be mapped.
    """

    def __init__(
        self,
        description: bytes,
        fds: Sequence[int],
        *,
        shapes: Shapes,
        place: str,
        open_memory: OpenMemory,
    ) -> None:
        try:
            self._shapes, slots = _checked(description, shapes, place)
            if len(fds) != 2:
                raise SharingError(f"a buffer: expected 2 file descriptors, got {len(fds)}")
            self._floats = flat_size(self._shapes)
            head = HostMemory(fds[0], 2 * slots * _FIELDS)
            try:
                self._memory = open_memory(fds[1], slots * self._floats)
            except BaseException:
                head.close()
                raise
        finally:
            for fd in fds:
                os.close(fd)
        self._head_memory, self._head = head, _head_view(head, slots)

    def newer_than(self, known: PolicyVersion) -> tuple[PolicyVersion, dict[str, Any]] | None:
        """A copy of the newest weights by name, or None.

        None if they are not newer than `known`, or were overwritten during every attempt to copy.
        """
        for _ in range(_ATTEMPTS):
            slot = int(self._head[:, 0].argmax())
            post, generation, version = (int(number) for number in self._head[slot])
            at = PolicyVersion(generation, version)
            if post == 0 or at <= known:
                return None
            copy = self._memory.read(slot * self._floats, self._floats)
            if int(self._head[slot, 0]) == post:
                return at, split_flat(copy, self._shapes)
        return None

    def close(self) -> None:
        """Unmap the buffer."""
        self._head = self._head.copy()  # the view would keep the mapping
        self._head_memory.close()
        self._memory.close()


def _checked(description: bytes, shapes: Shapes, place: str) -> tuple[Shapes, int]:
    """Shapes in the buffer's order, and the number of slots."""
    try:
        said = json.loads(description)
        there = {str(name): tuple(shape) for name, shape in said["shapes"].items()}
        slots, lies = said["slots"], said["place"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SharingError(f"the buffer has a broken description: {error!r}") from error
    if lies != place:
        raise SharingError(f"the buffer is in {str(lies)[:100]!r}, this role computes in {place}")
    if there != {name: tuple(shape) for name, shape in shapes.items()}:
        raise SharingError("the buffer has weights of another architecture")
    if not (isinstance(slots, int) and 1 <= slots <= 64):
        raise SharingError("the buffer has a broken description: slots")
    return there, slots
