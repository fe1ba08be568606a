"""Memory that processes of one machine map together, and that outlives each of them.

Whoever has it mapped keeps it: the kernel frees it when the last of them is gone, however that one
ended. No process has to tell the others that it leaves.
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
#: Processors that show stores to others in the order in which they were made, and load in order:
#: what readers conclude from the head of a buffer stands on it.
_MACHINES = ("x86_64", "AMD64")


class SharedMemory(Protocol):
    """A piece of memory, seen as float32."""

    @property
    def place(self) -> str:
        """Where it lies; only who computes there can use it: "host", or "cuda:" and a GPU's id."""

    def write(self, offset: int, tensors: Sequence[Tensor]) -> None:
        """Write float32 tensors one behind the other from float `offset` on; done on return."""

    def read(self, offset: int, count: int) -> Any:
        """A copy `[count]` float32 from float `offset` on, as an array or a tensor of the place.

        Complete on return.
        """

    def share(self) -> int:
        """A new file descriptor of it, to hand to another process; the caller closes it."""

    def close(self) -> None:
        """Use it no more; other processes still may."""


#: Maps the memory behind a file descriptor of `floats` numbers; leaves the descriptor open.
OpenMemory = Callable[[int, int], SharedMemory]


class HostMemory:
    """Memory of the machine, without a name in any file system (Linux's memfd).

    Args:
        fd: of the memory; a duplicate is kept.
        floats: how many numbers it has.
        writable: whether this process writes; a reader's writes would be faults of its own.

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
        # the arrays keep the mapping: it goes with the last of them
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
            # who maps it must never be killed because somebody has made it shorter
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
        """Write float32 tensors one behind the other from float `offset` on."""
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
