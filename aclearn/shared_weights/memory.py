"""Memory that processes of one machine map together.

The kernel frees it when the last process that maps it is gone, however that one ended.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import SharingError

if TYPE_CHECKING:
    from torch import Tensor

_FLOAT_BYTES = 4
#: CPUs that keep the order of stores and of loads, which `SeqlockBuffer` relies on.
_MACHINES = ("x86_64", "AMD64")


class SharedMemory(Protocol):
    """A piece of memory, seen as float32."""

    @property
    def place(self) -> str:
        """The device that can use it: "host", or "cuda:" and a GPU's id."""

    def write(self, offset: int, tensors: Sequence[Tensor]) -> None:
        """Write float32 tensors one behind the other from float `offset` on; done on return."""

    def read(self, offset: int, count: int) -> Any:
        """A copy `[count]` float32 from float `offset` on, an array or tensor; done on return."""

    def share(self) -> int:
        """A new file descriptor of it, to hand to another process; the caller closes it."""

    def close(self) -> None:
        """Unmap it here; other processes keep it."""


#: Maps the memory behind (file descriptor, number of floats); leaves the descriptor open.
OpenMemory = Callable[[int, int], SharedMemory]


class HostMemory:
    """Memory of the machine, without a name in any file system (Linux's memfd).

    Args:
        fd: of the memory; a duplicate is kept.
        floats: how many numbers it has.
        writable: whether this process may write.

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
            SharingError: this system has none, or not so much.
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
            os.posix_fallocate(fd, 0, _FLOAT_BYTES * floats)  # taken now, not at the first write
            memory = cls(fd, floats, writable=True)
            # a process that maps it would be killed if it became shorter
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

    def write(self, offset: int, tensors: Sequence[Tensor]) -> None:
        """Write float32 tensors in a row from float `offset` on."""
        for tensor in tensors:
            stop = offset + tensor.numel()
            # reshaped first: a channels-last weight is written in the plain order of its axes
            target = self.floats[offset:stop].reshape(tuple(tensor.shape))
            np.copyto(target, tensor.detach().cpu().numpy(), casting="equiv")
            offset = stop

    def read(self, offset: int, count: int) -> NDArray[np.float32]:
        """A copy `[count]` float32 from float `offset` on."""
        return self.floats[offset : offset + count].copy()

    def share(self) -> int:
        """A new file descriptor of it; the caller closes it."""
        return os.dup(self._fd)

    def close(self) -> None:
        """Use it no more."""
        if self._floats is not None:
            self._floats = None
            os.close(self._fd)
