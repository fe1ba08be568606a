"""Memory of a batch under assembly, and its upload to the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Staging:
    """Memory for the arrays of a batch, and their upload.

    This class is for the CPU: each batch has its own memory, and nothing is copied.
    """

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic]
    ) -> NDArray[Any]:
        """Memory for one array of a batch, which `upload` accepts without a copy."""
        return np.empty(shape, dtype)

    def upload(self, name: str, array: NDArray[Any]) -> Tensor:
        """`array` on the device; the copy may still be in progress in the current stream."""
        return torch.from_numpy(array)


#: Stateless, so one is enough.
HOST = Staging()


def _pinned(size_bytes: int) -> Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)


@dataclass
class _Slot:
    """The memory of one array of a batch, as bytes and as the current array."""

    memory: Tensor
    uploaded: torch.cuda.Event
    tensor: Tensor
    array: NDArray[Any]


class PinnedStaging(Staging):
    """Page-locked memory, which a GPU reads while the CPU continues; for one thread.

    Each array of a batch has one block of memory, as large as the largest array so far, which every
    batch reuses. It is reused only after the upload of its last array.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        allocate: Callable[[int], Tensor] = _pinned,
        make_event: Callable[[], torch.cuda.Event] = torch.cuda.Event,
    ) -> None:
        self._device, self._allocate, self._make_event = device, allocate, make_event
        self._slots: dict[str, _Slot] = {}

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic]
    ) -> NDArray[Any]:
        """The memory of `name`, after the upload of its last array."""
        size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        slot = self._slots.get(name)
        if slot is not None:
            slot.uploaded.synchronize()
        if slot is None or slot.memory.numel() < size_bytes:
            memory, uploaded = self._allocate(size_bytes), self._make_event()
        else:
            memory, uploaded = slot.memory, slot.uploaded
        element = torch.from_numpy(np.empty(0, dtype)).dtype
        tensor = memory[:size_bytes].view(element).view(shape)
        array: NDArray[Any] = tensor.numpy()
        self._slots[name] = _Slot(memory, uploaded, tensor, array)
        return array

    def upload(self, name: str, array: NDArray[Any]) -> Tensor:
        """A copy on the device, started in the current stream; any array is accepted.

        The current stream must be the one in which the copy is used, or that one must wait for it.
        """
        slot = self._slots.get(name)
        if slot is None or array is not slot.array:
            self.empty(name, array.shape, array.dtype)[...] = array
            slot = self._slots[name]
        copy = torch.empty_like(slot.tensor, device=self._device)
        copy.copy_(slot.tensor, non_blocking=True)
        slot.uploaded.record()
        return copy
