"""A GPU's shared memory: its calls of the driver on a stand-in, and on a GPU if there is one.

The stand-in maps host memory as the driver maps a GPU's: reserved addresses, protections and
counted handles are real, so that a call in the wrong order or a write by a reader fails.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import textwrap
from enum import IntEnum
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from aclearn.errors import SharingError
from aclearn.shared_weights import cuda_memory
from aclearn.shared_weights.cuda_memory import CudaMemory
from tests.support.waiting import DEADLINE_S

CPU = torch.device("cpu", 0)
GRANULARITY = 1 << 16
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_PRIVATE, _FIXED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0x10


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2


class StandInDriver:
    """The driver's virtual memory management on host memory; `fail_at` names a call that fails."""

    CUresult = Result
    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED="pinned")
    CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE="device")
    CUmemAllocationHandleType = SimpleNamespace(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR="fd")
    CUmemAllocationGranularity_flags = SimpleNamespace(CU_MEM_ALLOC_GRANULARITY_MINIMUM="least")
    CUmemAccess_flags = SimpleNamespace(
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE=mmap.PROT_READ | mmap.PROT_WRITE,
        CU_MEM_ACCESS_FLAGS_PROT_READ=mmap.PROT_READ,
    )
    CUmemAllocationProp = CUmemLocation = CUmemAccessDesc = SimpleNamespace
    CUdeviceptr = int

    def __init__(self, fail_at: str | None = None) -> None:
        self.handles: set[int] = set()
        self.reserved: dict[int, int] = {}
        self.mapped: set[int] = set()
        self.fail_at = fail_at

    def __getattribute__(self, name: str):
        if name.startswith("cuMem") and name == object.__getattribute__(self, "fail_at"):
            return lambda *_: (Result.CUDA_ERROR_OUT_OF_MEMORY, None)
        return object.__getattribute__(self, name)

    def cuMemGetAllocationGranularity(self, properties, option):
        self._check(properties)
        assert option == "least"
        return Result.CUDA_SUCCESS, GRANULARITY

    def cuMemCreate(self, size, properties, flags):
        self._check(properties)
        assert size % GRANULARITY == 0 and flags == 0
        fd = os.memfd_create("gpu")
        os.ftruncate(fd, size)
        self.handles.add(fd)
        return Result.CUDA_SUCCESS, fd

    def cuMemAddressReserve(self, size, alignment, address, flags):
        assert size % GRANULARITY == 0 and alignment == GRANULARITY and (address, flags) == (0, 0)
        got = _LIBC.mmap(None, size, 0, _PRIVATE, -1, 0)
        self.reserved[got] = size
        return Result.CUDA_SUCCESS, got

    def cuMemMap(self, address, size, offset, handle, flags):
        assert self.reserved[address] == size and handle in self.handles
        assert (offset, flags) == (0, 0) and os.fstat(handle).st_size >= size
        got = _LIBC.mmap(address, size, 0, mmap.MAP_SHARED | _FIXED, handle, 0)
        assert got == address
        self.mapped.add(address)
        return (Result.CUDA_SUCCESS,)

    def cuMemSetAccess(self, address, size, accesses, count):
        [access] = accesses
        assert address in self.mapped and count == 1
        assert (access.location.type, access.location.id) == ("device", 0)
        assert _LIBC.mprotect(address, size, access.flags) == 0
        return (Result.CUDA_SUCCESS,)

    def cuMemExportToShareableHandle(self, handle, kind, flags):
        assert handle in self.handles and (kind, flags) == ("fd", 0)
        return Result.CUDA_SUCCESS, os.dup(handle)

    def cuMemImportFromShareableHandle(self, fd, kind):
        assert kind == "fd"
        handle = os.dup(fd)
        self.handles.add(handle)
        return Result.CUDA_SUCCESS, handle

    def cuMemUnmap(self, address, size):
        assert self.reserved[address] == size
        self.mapped.remove(address)
        assert _LIBC.mmap(address, size, 0, _PRIVATE | _FIXED, -1, 0) == address
        return (Result.CUDA_SUCCESS,)

    def cuMemAddressFree(self, address, size):
        assert address not in self.mapped and self.reserved.pop(address) == size
        assert _LIBC.munmap(address, size) == 0
        return (Result.CUDA_SUCCESS,)

    def cuMemRelease(self, handle):
        self.handles.remove(handle)
        os.close(handle)
        return (Result.CUDA_SUCCESS,)

    @property
    def taken(self) -> int:
        return len(self.handles) + len(self.reserved) + len(self.mapped)

    @staticmethod
    def _check(properties) -> None:
        assert (properties.type, properties.requestedHandleTypes) == ("pinned", "fd")
        assert (properties.location.type, properties.location.id) == ("device", 0)


def _tensor_at(address: int, floats: int, device: torch.device) -> torch.Tensor:
    assert device == CPU
    memory = (ctypes.c_float * floats).from_address(address)
    return torch.frombuffer(memory, dtype=torch.float32)


def _create(driver: StandInDriver, floats: int, tensor_at=_tensor_at) -> CudaMemory:
    with patch.multiple(cuda_memory, load_driver=lambda: driver, tensor_at=tensor_at):
        return CudaMemory.create(floats, CPU)


def _open(driver: StandInDriver, fd: int, floats: int) -> CudaMemory:
    with patch.multiple(cuda_memory, load_driver=lambda: driver, tensor_at=_tensor_at):
        return CudaMemory.open(fd, floats, CPU)


def test_what_one_writes_another_reads_and_keeps_when_the_writer_has_gone() -> None:
    writers, readers = StandInDriver(), StandInDriver()
    writer = _create(writers, 20_000)
    fd = writer.share()
    assert not os.get_inheritable(fd)
    reader = _open(readers, fd, 20_000)
    os.close(fd)
    writer.write(19_000, torch.arange(26.0))
    assert reader.read(19_000, 26).tolist() == list(map(float, range(26)))
    writer.close()
    assert writers.taken == 0
    copy = reader.read(19_002, 24)
    reader.close()
    assert readers.taken == 0
    assert copy.tolist() == list(map(float, range(2, 26)))


@pytest.mark.parametrize(
    "call",
    [
        "cuMemCreate",
        "cuMemImportFromShareableHandle",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemGetAllocationGranularity",
    ],
)
def test_a_call_that_fails_gives_back_what_was_taken_before(call) -> None:
    driver, other = StandInDriver(), StandInDriver(call)
    writer = _create(driver, 10)
    fd = writer.share()
    if call != "cuMemCreate":
        with pytest.raises(SharingError, match=f"^{call}: CUDA_ERROR_OUT_OF_MEMORY$"):
            _open(other, fd, 10)
    os.close(fd)
    if call != "cuMemImportFromShareableHandle":
        with pytest.raises(SharingError, match=f"^{call}: CUDA_ERROR_OUT_OF_MEMORY$"):
            _create(other, 10)
    assert other.taken == 0
    writer.close()


def _refuse(address, floats, device):
    raise RuntimeError("invalid device pointer")


def _copy(address, floats, device):
    return _tensor_at(address, floats, device).clone()


class NoDriver(StandInDriver):
    def cuMemGetAllocationGranularity(self, properties, option):
        raise RuntimeError("libcuda.so.1 is not there")


@pytest.mark.parametrize(
    ("driver", "tensor_at", "reason"),
    [
        (StandInDriver, _refuse, r"torch takes no memory .*: invalid device pointer"),
        (StandInDriver, _copy, "makes a copy"),
        (NoDriver, _tensor_at, r"cuMemGetAllocationGranularity: libcuda\.so\.1 is not"),
    ],
)
def test_memory_that_is_not_to_be_had_is_given_back(driver, tensor_at, reason) -> None:
    made = driver()
    with pytest.raises(SharingError, match=reason):
        _create(made, 10, tensor_at)
    assert made.taken == 0


def test_a_machine_without_the_binding_is_told_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(SharingError, match="pip install cuda-bindings"):
        cuda_memory.load_driver()


def test_a_closed_memory_says_so() -> None:
    driver = StandInDriver()
    memory = _create(driver, 10)
    memory.close()
    memory.close()
    with pytest.raises(ValueError, match="closed"):
        memory.read(0, 1)
    assert driver.taken == 0


_READER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from functools import partial
    import torch
    from aclearn.types import PolicyVersion
    from aclearn.shared_weights import SeqlockReader, request_fds
    from aclearn.shared_weights.cuda_memory import CudaMemory, place_of
    device = torch.device("cuda", 0)
    description, fds = request_fds(Path(sys.argv[1]))
    reader = SeqlockReader(
        description, fds, shapes={"a": (1000,), "b": (3, 5)}, place=place_of(device),
        open_memory=partial(CudaMemory.open, device=device),
    )
    print("ready", flush=True)
    for line in sys.stdin:
        at, tensors = reader.newer_than(PolicyVersion())
        values = {float(x) for t in tensors.values() for x in t.flatten().tolist()}
        print(at.version, tensors["a"].device, *sorted(values), flush=True)
""")
_WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    import torch
    from aclearn.types import PolicyVersion
    from aclearn.shared_weights import FileDescriptorServer, SeqlockBuffer
    from aclearn.shared_weights.cuda_memory import CudaMemory
    device = torch.device("cuda", 0)
    shapes = {"a": (1000,), "b": (3, 5)}
    buffer = SeqlockBuffer(shapes, CudaMemory.create(SeqlockBuffer.floats_needed(shapes), device))
    fd_server = FileDescriptorServer(Path(sys.argv[1]), buffer.describe, buffer.share)
    for line in sys.stdin:
        version = int(line)
        flat = torch.full((1000 + 3 * 5,), float(version), device=device)
        buffer.post(PolicyVersion(0, version), flat)
        print("posted", flush=True)
""")


def _start(script: str, path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(process: subprocess.Popen[str], line: str) -> str:
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore")
def test_a_reader_on_the_gpu_sees_what_another_process_posts_and_outlives_its_kill(
    tmp_path,
) -> None:
    writer = _start(_WRITER, tmp_path / "w.fds")
    try:
        assert _ask(writer, "1") == "posted"
        reader = _start(_READER, tmp_path / "w.fds")
        try:
            assert reader.stdout.readline().strip() == "ready"
            for version in range(2, 12):
                assert _ask(writer, str(version)) == "posted"
                assert _ask(reader, "?") == f"{version} cuda:0 {float(version)}"
            writer.kill()
            writer.wait(DEADLINE_S)
            for _ in range(3):
                assert _ask(reader, "?") == "11 cuda:0 11.0"
        finally:
            reader.kill()
            reader.wait(DEADLINE_S)
    finally:
        writer.kill()
        writer.wait(DEADLINE_S)
