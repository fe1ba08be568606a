"""Warp structs in torch's memory, whose fields are tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.resident.warp_setup import wp


class Structs:
    """An array of one struct, of zeros.

    Attributes:
        array: the Warp array, of `shape`.
        bytes: its memory, `[*shape, bytes of the struct]` uint8.
        fields: its numbers by name, `[*shape]` or `[*shape, n]` of a vector: views of the memory.
            What kernels write is seen there, and what is written there kernels see.
    """

    def __init__(self, struct: Any, shape: tuple[int, ...], device: torch.device) -> None:
        self._layout = np.dtype(struct.numpy_dtype())
        self.bytes = torch.zeros(*shape, self._layout.itemsize, dtype=torch.uint8, device=device)
        self.array = wp.array(
            ptr=self.bytes.data_ptr(), dtype=struct, shape=shape, device=warp_device(device)
        )
        self.fields: Mapping[str, Tensor] = dict(self._views())

    def numpy(self) -> NDArray[Any]:
        """A copy, a structured array `[*shape]`."""
        copied: NDArray[Any] = self.bytes.cpu().numpy().view(self._layout)[..., 0].copy()
        return copied

    def assign(self, values: NDArray[Any]) -> None:
        """Replace all structs.

        Args:
            values: as `numpy` gives them.
        """
        given = np.ascontiguousarray(values, self._layout)
        self.bytes.copy_(torch.from_numpy(given[..., None].view(np.uint8)))

    def _views(self) -> Any:
        for name, (field, offset, *_) in (self._layout.fields or {}).items():
            numbers, shape = field.subdtype or (field, ())
            if numbers.fields is not None:
                continue  # a struct within the struct
            dtype = torch.from_numpy(np.zeros(1, numbers)).dtype
            view = self.bytes[..., offset : offset + field.itemsize].view(dtype)
            yield name, view.view(*view.shape[:-1], *shape) if shape else view.squeeze(-1)


def warp_device(device: torch.device) -> str:
    """Warp's name of a device of torch."""
    return str(device) if device.type == "cuda" else "cpu"
