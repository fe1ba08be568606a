"""One version's weights on a GPU, copied to the host only when they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.types import split_flat


class DeviceSnapshot(Mapping[str, NDArray[np.float32]]):
    """A copy of float32 tensors on their device; the first read copies all of them to the host.

    A trainer on a GPU publishes after each batch, many times between two requests for weights;
    copying each version to the host would take longer than the update. Thread-safe. The copy is
    made in the current stream, which must be the reader's, or have ended before the first read.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        with torch.no_grad():
            # in axis order, whatever the memory layout of the weights
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors.values()])
        self._on_device: Tensor | None = flat
        self._on_host: dict[str, NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self._host()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def _host(self) -> dict[str, NDArray[np.float32]]:
        with self._lock:
            if self._on_device is not None:
                flat: NDArray[np.float32] = self._on_device.cpu().numpy()
                self._on_host, self._on_device = split_flat(flat, self._shapes), None
            return self._on_host
