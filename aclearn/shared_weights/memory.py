"""Memory that several processes of one machine map.

The kernel frees it at the end of the last process that maps it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import SharingError

if TYPE_CHECKING:
    from torch import Tensor

_FLOAT_BYTES = 4
#: CPUs that keep the order of stores and of loads, as `SeqlockBuffer` requires.
_MACHINES = ("x86_64", "AMD64")


class SharedMemory(Protocol):
    """Shared memory of float32."""

    @property
    def place(self) -> str:
        """The device that can use it: "host", or "cuda:" and a GPU's id."""

    def write(self, offset: int, flat: Tensor) -> None:
        """Write `[n]` float32 from float `offset` on; complete on return."""

    def read(self, offset: int, count: int) -> Any:
        """A copy `[count]` float32 from float `offset` on, array or tensor; complete on return."""

    def share(self) -> int:
        """A new file descriptor for another process; the caller closes it."""

    def close(self) -> None:
        """Unmap it here; other processes keep it."""


#: Maps the memory of (file descriptor, number of floats); leaves the descriptor open.
OpenMemory = Callable[[int, int], SharedMemory]


class HostMemory:
    """Memory of the machine without a file name (Linux's memfd).

    Args:
        fd: of the memory; a duplicate is kept.

    Raises:
        SharingError: it has another size, or cannot be mapped.
    """

    place = "host"

    def __init__(self, fd: int, floats: int, *, writable: bool = False) -> None:
        size_bytes = _FLOAT_BYTES * floats
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        try:
            there = os.fstat(fd).st_size
            if there != size_bytes:
                raise SharingError(f"shared memory: expected {size_bytes} bytes, got {there}")
            mapped = mmap.mmap(fd, size_bytes, access=access)
            self._fd = os.dup(fd)
        except OSError as error:
            raise SharingError(f"shared memory of {size_bytes} bytes: {error.strerror}") from error
        # the mapping ends with the last array over it
        self._floats: NDArray[np.float32] | None = np.frombuffer(mapped, np.float32)

    @classmethod
    def create(cls, floats: int) -> HostMemory:
        """New memory, all zeros.

        Raises:
            SharingError: this system has no such memory, or not enough.
        """
        if not hasattr(os, "memfd_create") or platform.machine() not in _MACHINES:
            raise SharingError(
                f"shared memory needs Linux on {' or '.join(_MACHINES)}, this is "
                f"{platform.system()} on {platform.machine()}"
            )
        try:
            fd = os.memfd_create("aclearn", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            raise SharingError(f"shared memory: {error.strerror}") from error
        try:
            # allocated now, not at the first write
            os.posix_fallocate(fd, 0, _FLOAT_BYTES * floats)
            memory = cls(fd, floats, writable=True)
            # truncating it would kill processes that map it
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            return memory
        except OSError as error:
            raise SharingError(f"shared memory of {floats} numbers: {error.strerror}") from error
        finally:
            os.close(fd)

    @property
    def floats(self) -> NDArray[np.float32]:
        """The memory itself, `[floats]` float32."""
        if self._floats is None:
            raise ValueError("the shared memory is closed")
        return self._floats

    def write(self, offset: int, flat: Tensor) -> None:
        """Write `[n]` float32 from float `offset` on."""
        target = self.floats[offset : offset + len(flat)]
        np.copyto(target, flat.cpu().numpy(), casting="equiv")

    def read(self, offset: int, count: int) -> NDArray[np.float32]:
        """A copy `[count]` float32 from float `offset` on."""
        return self.floats[offset : offset + count].copy()

    def share(self) -> int:
        """A new file descriptor, which the caller must close."""
        return os.dup(self._fd)

    def close(self) -> None:
        """Unmap it."""
        if self._floats is not None:
            self._floats = None
            os.close(self._fd)
