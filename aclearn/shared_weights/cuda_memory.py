"""GPU memory that several processes map, by CUDA's virtual memory management.

Such an allocation is passed as a file descriptor and stays until the last process that maps it has
ended. (With older IPC handles the allocating process must outlive every reader.) CUDA driver API,
"Virtual Memory Management": cuMemCreate, cuMemExportToShareableHandle.
"""

from __future__ import annotations

import os
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from aclearn.errors import SharingError

_FLOAT_BYTES = 4


def place_of(device: torch.device) -> str:
    """The GPU's id, the same in every process."""
    return f"cuda:{torch.cuda.get_device_properties(device).uuid}"


def load_driver() -> ModuleType:
    """NVIDIA's binding of the driver, which torch's CUDA builds include (since 2.10).

    Raises:
        SharingError: it is not installed.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise SharingError(f"{error}; pip install cuda-bindings") from error
    module: ModuleType = driver
    return module


def tensor_at(address: int, floats: int, device: torch.device) -> Tensor:
    """Float32 `[floats]` of the device's memory at `address`, which the tensor does not free."""
    # data: (address, read-only); torch takes no read-only memory
    said = {
        "shape": (floats,),
        "typestr": "<f4",
        "data": (address, False),
        "strides": None,
        "version": 3,
    }
    return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=said), device=device)


class CudaMemory:
    """Memory of one GPU; see `SharedMemory`.

    Copies go through the current stream of the calling thread and are waited for.

    Args:
        handle: of the allocation, which the object owns from now on.

    Raises:
        SharingError: it cannot be mapped.
    """

    def __init__(
        self,
        handle: Any,
        floats: int,
        device: torch.device,
        driver: ModuleType,
        *,
        writable: bool,
    ) -> None:
        self._handle, self._device, self._driver = handle, device, driver
        self._mapped = False
        self._address: Any = None
        try:
            properties = _properties(driver, device)
            self._size, granularity = _rounded(driver, properties, floats)
            self._address = _call(
                driver, "cuMemAddressReserve", self._size, granularity, driver.CUdeviceptr(0), 0
            )
            _call(driver, "cuMemMap", self._address, self._size, 0, handle, 0)
            self._mapped = True
            access = driver.CUmemAccessDesc()
            access.location = properties.location
            flags = driver.CUmemAccess_flags
            access.flags = (
                flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                if writable
                else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
            )
            _call(driver, "cuMemSetAccess", self._address, self._size, [access], 1)
            try:
                self._tensor: Tensor | None = tensor_at(int(self._address), floats, device)
            except (RuntimeError, TypeError, ValueError) as error:
                raise SharingError(f"torch takes no memory of another process: {error}") from error
            if self._tensor.data_ptr() != int(self._address):
                raise SharingError("torch makes a copy of another process's memory")
        except BaseException:
            self._release()
            raise

    @classmethod
    def create(cls, floats: int, device: torch.device) -> CudaMemory:
        """New memory for `floats` numbers, not initialised.

        Raises:
            SharingError: the driver has no such memory, or not enough.
        """
        driver = load_driver()
        _synchronise(device)  # makes torch's context, before other calls of the driver
        properties = _properties(driver, device)
        size, _ = _rounded(driver, properties, floats)
        handle = _call(driver, "cuMemCreate", size, properties, 0)
        return cls(handle, floats, device, driver, writable=True)

    @classmethod
    def open(cls, fd: int, floats: int, device: torch.device) -> CudaMemory:
        """The memory of a file descriptor, which the caller must close.

        Raises:
            SharingError: it is no such memory, or of another size or GPU.
        """
        driver = load_driver()
        _synchronise(device)  # as in `create`
        handle = _call(driver, "cuMemImportFromShareableHandle", fd, _fd_kind(driver))
        return cls(handle, floats, device, driver, writable=False)

    @property
    def place(self) -> str:
        """The GPU's id."""
        return place_of(self._device)

    @property
    def tensor(self) -> Tensor:
        """The memory itself, `[floats]` float32."""
        if self._tensor is None:
            raise ValueError("the shared memory is closed")
        return self._tensor

    @torch.no_grad()
    def write(self, offset: int, flat: Tensor) -> None:
        """Write `[n]` float32 from float `offset` on."""
        self.tensor[offset : offset + len(flat)].copy_(flat)
        _synchronise(self._device)

    def read(self, offset: int, count: int) -> Tensor:
        """A copy `[count]` float32 on the same GPU."""
        copy = self.tensor[offset : offset + count].clone()
        _synchronise(self._device)
        return copy

    def share(self) -> int:
        """A new file descriptor, which the caller must close."""
        kind = _fd_kind(self._driver)
        fd = int(_call(self._driver, "cuMemExportToShareableHandle", self._handle, kind, 0))
        os.set_inheritable(fd, False)
        return fd

    def close(self) -> None:
        """Unmap it; its tensors are invalid from now on."""
        if self._tensor is not None:
            self._tensor = None
            _synchronise(self._device)
            self._release()

    def _release(self) -> None:
        """Undo the constructor; errors here would hide the first one."""
        if self._mapped:
            self._driver.cuMemUnmap(self._address, self._size)
        if self._address is not None:
            self._driver.cuMemAddressFree(self._address, self._size)
        self._driver.cuMemRelease(self._handle)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _properties(driver: ModuleType, device: torch.device) -> Any:
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    location = driver.CUmemLocation()
    location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = device.index if device.index is not None else torch.cuda.current_device()
    properties.location = location
    properties.requestedHandleTypes = _fd_kind(driver)
    return properties


def _fd_kind(driver: ModuleType) -> Any:
    return driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def _rounded(driver: ModuleType, properties: Any, floats: int) -> tuple[int, int]:
    """Bytes of an allocation for this many numbers, and their granularity."""
    least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granularity = int(_call(driver, "cuMemGetAllocationGranularity", properties, least))
    return -(-_FLOAT_BYTES * floats // granularity) * granularity, granularity


def _call(driver: ModuleType, name: str, *arguments: Any) -> Any:
    """The first result of a function of the driver.

    Raises:
        SharingError: it returned an error, or there is no driver.
    """
    try:
        error, *values = getattr(driver, name)(*arguments)
    except RuntimeError as missing:
        raise SharingError(f"{name}: {missing}") from missing
    if error != driver.CUresult.CUDA_SUCCESS:
        raise SharingError(f"{name}: {getattr(error, 'name', error)}")
    return values[0] if values else None
