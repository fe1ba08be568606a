"""The way of a batch from the host's memory to the device that learns from it."""

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
    """Memory in which a batch is put together, and its way to the device.

    This one is for the CPU: each batch has memory of its own, and nothing is copied.
    """

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic]
    ) -> NDArray[Any]:
        """Memory to write one array of a batch into, which `upload` then takes without a copy."""
        return np.empty(shape, dtype)

    def upload(self, name: str, array: NDArray[Any]) -> Tensor:
        """`array` on the device, or on its way there in the current stream."""
        return torch.from_numpy(array)


#: Stateless, so one is enough.
HOST = Staging()


def _pinned(size_bytes: int) -> Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)


@dataclass
class _Slot:
    """The memory of one array of a batch, as bytes and as what it holds now."""

    memory: Tensor
    uploaded: torch.cuda.Event
    tensor: Tensor
    array: NDArray[Any]


class PinnedStaging(Staging):
    """Page-locked memory, which a GPU reads by itself while the CPU goes on; for one thread.

    There is one piece of memory for each array of a batch, as large as the largest that it held,
    and every batch is put together in it. It is handed out again only when the copy of what it held
    before has ended.

    Args:
        device: where batches go.
        allocate: makes memory of so many bytes; the GPU must be able to read it by itself.
        make_event: makes the event that marks the end of an upload.
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
        """The memory of `name`, when the upload of what it held last has ended."""
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
        """A copy on the device, begun in the current stream; an array from elsewhere goes through.

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
