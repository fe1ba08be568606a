"""The newest published weights, and their readers."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.shared_weights import FileDescriptorServer, SeqlockBuffer, SharedMemory
from aclearn.types import PolicyVersion, Shapes, split_flat


class PublishedVersion:
    """A copy of one version's weights, which never changes. Thread-safe.

    It stays on its device until the first read: a trainer on a GPU publishes many versions between
    two requests, and copying each to the host would take longer than the update. It is made in the
    current stream, which must be the reader's, or have ended before the first read.
    """

    def __init__(self, at: PolicyVersion, flat: Tensor, shapes: Shapes) -> None:
        self.at, self._flat, self._shapes = at, flat, shapes
        self._on_host: dict[str, NDArray[np.float32]] | None = None
        self._lock = threading.Lock()

    @property
    def on_device(self) -> Mapping[str, Tensor]:
        """The weights where they were made, by name; nobody may change them."""
        sizes = [math.prod(shape) for shape in self._shapes.values()]
        parts = zip(self._shapes.items(), torch.split(self._flat, sizes), strict=True)
        return {name: part.view(shape) for (name, shape), part in parts}

    @property
    def tensors(self) -> Mapping[str, NDArray[np.float32]]:
        """The weights on the host, by name."""
        with self._lock:
            if self._on_host is None:
                self._on_host = split_flat(self._flat.cpu().numpy(), self._shapes)
            return self._on_host


class PublishedWeights:
    """Copies the weights once for each version; four readers take what they need.

    The trainer's sockets send what is newer (`newer_than`). Processes of the same machine map it
    (`share`). Resident environments act with the network itself and read the version (`at`). The
    split of importance ratios looks older versions up (`of`). Thread-safe.

    Args:
        kept: number of the newest versions that `of` knows.
    """

    def __init__(self, *, kept: int = 1) -> None:
        self._lock = threading.Lock()
        self._newest: PublishedVersion | None = None
        self._kept: deque[PublishedVersion] = deque(maxlen=kept)
        self._buffer: SeqlockBuffer | None = None
        self._fd_server: FileDescriptorServer | None = None

    @property
    def at(self) -> PolicyVersion:
        """The newest version, (-1, -1) before the first publication."""
        newest = self._newest
        return PolicyVersion() if newest is None else newest.at

    def publish(self, at: PolicyVersion, weights: Mapping[str, Tensor]) -> None:
        """Copy these weights, which no thread may write meanwhile, as the newest ones.

        Args:
            weights: float32, by name; the same names, shapes and order each time.

        Raises:
            ValueError: `at` is not newer than the published version.
        """
        with self._lock, torch.no_grad():
            if at <= self.at:
                raise ValueError(f"version {at} is not newer than the published {self.at}")
            # in axis order, whatever the memory layout of the weights
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in weights.values()])
            if self._buffer is not None:
                self._buffer.post(at, flat)
            shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
            self._newest = PublishedVersion(at, flat, shapes)
            self._kept.append(self._newest)

    def newer_than(self, known: PolicyVersion) -> PublishedVersion | None:
        """The newest weights if they are newer than `known`, else None."""
        newest = self._newest
        return newest if newest is not None and newest.at > known else None

    def of(self, version: int) -> PublishedVersion | None:
        """The weights of this version of the present generation, if they are kept."""
        with self._lock:
            for each in self._kept:
                if each.at == PolicyVersion(self.at.generation, version):
                    return each
        return None

    def share(self, shapes: Shapes, allocate: Callable[[int], SharedMemory], path: Path) -> None:
        """Post the later versions into memory that other processes map.

        Args:
            path: of the socket file from which the processes get it.

        Raises:
            SharingError: it is not possible.
        """
        buffer = SeqlockBuffer(shapes, allocate(SeqlockBuffer.floats_needed(shapes)))
        try:
            self._fd_server = FileDescriptorServer(path, buffer.describe, buffer.share)
        except BaseException:
            buffer.close()
            raise
        self._buffer = buffer

    def close(self) -> None:
        """Share nothing any more; processes that mapped the memory keep it."""
        if self._fd_server is not None and self._buffer is not None:
            self._fd_server.close()
            self._buffer.close()
            self._fd_server = self._buffer = None
