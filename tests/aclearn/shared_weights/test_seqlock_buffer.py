"""The buffer of weights: its readers' copies, between two processes and when one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from aclearn.errors import SharingError
from aclearn.shared_weights import HostMemory, SeqlockBuffer, SeqlockReader, request_fds
from aclearn.types import PolicyVersion
from tests.support.waiting import DEADLINE_S

SHAPES = {"a.weight": (2, 3), "a.bias": (2,), "scale": ()}
SIZE = 9


def _flat(value: float) -> torch.Tensor:
    return torch.full((SIZE,), float(value))


def _buffer() -> SeqlockBuffer:
    return SeqlockBuffer(SHAPES, HostMemory.create(SeqlockBuffer.floats_needed(SHAPES)))


def _reader(buffer: SeqlockBuffer, open_memory=HostMemory, fds=None) -> SeqlockReader:
    return SeqlockReader(
        buffer.describe(),
        buffer.share() if fds is None else fds,
        shapes=SHAPES,
        place="host",
        open_memory=open_memory,
    )


def _values(found) -> tuple[PolicyVersion, set[float]]:
    at, tensors = found
    assert {name: tensor.shape for name, tensor in tensors.items()} == SHAPES
    return at, {float(x) for tensor in tensors.values() for x in np.ravel(tensor)}


@pytest.fixture
def pair():
    buffer = _buffer()
    reader = _reader(buffer)
    yield buffer, reader
    reader.close()
    buffer.close()


def test_a_reader_finds_weights_by_name_that_are_newer_and_keeps_its_copy(pair) -> None:
    buffer, reader = pair
    assert reader.newer_than(PolicyVersion()) is None
    buffer.post(PolicyVersion(0, 4), torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0]))
    at, first = reader.newer_than(PolicyVersion())
    # a generation counts more than a version
    for generation, version in [(0, 5), (0, 500), (1, 20), (1, 21), (1, 22)]:
        at = PolicyVersion(generation, version)
        buffer.post(at, _flat(version))
        assert _values(reader.newer_than(PolicyVersion())) == (at, {float(version)})
        assert reader.newer_than(at) is None
        assert reader.newer_than(PolicyVersion(generation, version + 1)) is None
    # the slots are written again
    assert first["a.weight"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert (first["a.bias"].tolist(), first["scale"].tolist()) == ([7.0, 8.0], 9.0)


class Interrupted:
    """Memory in which the writer posts while a reader copies, `times` times."""

    def __init__(self, memory: HostMemory, buffer: SeqlockBuffer, times: int) -> None:
        self._memory, self._buffer, self._times = memory, buffer, times
        self.place = "host"
        self.posted = 10

    def read(self, offset: int, count: int):
        first = self._memory.read(offset, count // 2)
        if self._times:
            self._times -= 1
            for _ in range(3):  # once around the slots
                self.posted += 1
                self._buffer.post(PolicyVersion(0, self.posted), _flat(self.posted))
        rest = self._memory.read(offset + count // 2, count - count // 2)
        return np.concatenate([first, rest])

    def close(self) -> None:
        self._memory.close()


@pytest.mark.parametrize(("times", "version"), [(0, 10), (1, 13), (2, 16), (3, None)])
def test_a_copy_that_was_overtaken_is_made_again_and_never_a_mixture(times, version) -> None:
    buffer = _buffer()
    buffer.post(PolicyVersion(0, 10), _flat(10))

    def open_memory(fd, floats):
        return Interrupted(HostMemory(fd, floats), buffer, times)

    reader = _reader(buffer, open_memory)
    found = reader.newer_than(PolicyVersion())
    if version is None:
        assert found is None  # three times in a row: next time
        assert _values(reader.newer_than(PolicyVersion()))[1] == {19.0}
    else:
        assert _values(found) == (PolicyVersion(0, version), {float(version)})
    reader.close()
    buffer.close()


def test_a_slot_that_a_writer_died_in_is_not_taken_for_what_it_held(monkeypatch) -> None:
    buffer = _buffer()
    buffer.post(PolicyVersion(0, 10), _flat(10))
    writing = buffer._memory.write

    def die_half_way(offset, flat) -> None:
        writing(offset, flat[:6])
        raise RuntimeError("killed")

    class Dying(Interrupted):
        """While a reader copies, the writer posts twice and dies in the slot that is copied."""

        def read(self, offset: int, count: int):
            first = self._memory.read(offset, 1)
            if self._times:
                self._times = 0
                for version in (11, 12):
                    buffer.post(PolicyVersion(0, version), _flat(version))
                monkeypatch.setattr(buffer._memory, "write", die_half_way)
                with pytest.raises(RuntimeError, match="killed"):
                    buffer.post(PolicyVersion(0, 13), _flat(13))
            return np.concatenate([first, self._memory.read(offset + 1, count - 1)])

    reader = _reader(buffer, lambda fd, floats: Dying(HostMemory(fd, floats), buffer, 1))
    assert _values(reader.newer_than(PolicyVersion())) == (PolicyVersion(0, 12), {12.0})
    reader.close()
    buffer.close()


def _described(**changes) -> bytes:
    return json.dumps({"place": "host", "slots": 3, "shapes": SHAPES, **changes}).encode()


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (_described(place="cuda:1"), "the buffer is in 'cuda:1', this role computes in host"),
        (_described(shapes={**SHAPES, "scale": (1,)}), "weights of another architecture"),
        (_described(shapes={"a.weight": (2, 3)}), "weights of another architecture"),
        (_described(slots=0), "a broken description: slots"),
        (_described(slots="3"), "a broken description: slots"),
        (_described(shapes=3), "a broken description: AttributeError"),
        (_described(shapes={"a": 1}), "a broken description: TypeError"),
        (b"", "a broken description: JSONDecodeError"),
        (b"\xff\xfe", "a broken description"),
        (b"[]", "a broken description"),
        (b"{}", "a broken description: KeyError"),
    ],
)
def test_a_buffer_that_is_not_for_this_role_is_refused_and_its_files_are_closed(
    description, message
) -> None:
    buffer = _buffer()
    before = _open_files()
    with pytest.raises(SharingError, match=message):
        SeqlockReader(
            description, buffer.share(), shapes=SHAPES, place="host", open_memory=HostMemory
        )
    assert _open_files() == before
    buffer.close()


def test_a_buffer_whose_memory_cannot_be_handed_over_leaves_nothing_open(monkeypatch) -> None:
    buffer = _buffer()
    before = _open_files()

    def refuse() -> int:
        raise SharingError("cuMemExportToShareableHandle: CUDA_ERROR_NOT_PERMITTED")

    monkeypatch.setattr(buffer._memory, "share", refuse)
    for _ in range(3):
        with pytest.raises(SharingError, match="NOT_PERMITTED"):
            buffer.share()
    assert _open_files() == before
    buffer.close()


def test_a_processor_without_ordered_stores_has_no_buffers(monkeypatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(SharingError, match="needs Linux on x86_64 or AMD64, this is Linux on aarc"):
        HostMemory.create(1)


@pytest.mark.parametrize("keep", [0, 1])
def test_missing_or_wrong_files_are_refused_and_closed(keep) -> None:
    buffer = _buffer()
    before = _open_files()
    fds = buffer.share()
    for fd in fds[keep:]:
        os.close(fd)
    with pytest.raises(SharingError, match=f"expected 2 file descriptors, got {keep}"):
        _reader(buffer, fds=fds[:keep])
    with pytest.raises(SharingError, match=r"expected \d+ bytes, got \d+"):
        _reader(buffer, fds=buffer.share()[::-1])
    assert _open_files() == before
    buffer.close()


_WRITER = """
import sys, time, itertools
import torch
from pathlib import Path
from aclearn.types import PolicyVersion
from aclearn.shared_weights import FileDescriptorServer, HostMemory, SeqlockBuffer
shapes = {"a": (64, 64), "b": (4096,)}
buffer = SeqlockBuffer(shapes, HostMemory.create(SeqlockBuffer.floats_needed(shapes)))
fd_server = FileDescriptorServer(Path(sys.argv[1]), buffer.describe, buffer.share)
for version in itertools.count(int(sys.argv[2])):
    buffer.post(PolicyVersion(0, version), torch.full((2 * 4096,), float(version)))
    if version % 1000 == 0:
        print(version, flush=True)
"""
_WRITER_SHAPES = {"a": (64, 64), "b": (4096,)}


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _start_writer(path: Path, first: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(path), str(first)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline()
    return writer


def test_weights_of_another_process_are_whole_and_outlive_its_kill(tmp_path) -> None:
    before = _open_files()
    writer = _start_writer(tmp_path / "b.fds", 1000)
    try:
        description, fds = request_fds(tmp_path / "b.fds")
        reader = SeqlockReader(
            description, fds, shapes=_WRITER_SHAPES, place="host", open_memory=HostMemory
        )
        end = time.monotonic() + DEADLINE_S
        known, seen = PolicyVersion(), 0
        while seen < 50:
            assert time.monotonic() < end, f"{seen} versions in {DEADLINE_S} s"
            found = reader.newer_than(known)
            if found is not None:
                at, tensors = found
                assert at > known
                for tensor in tensors.values():
                    assert set(tensor.ravel().tolist()) == {float(at.version)}
                known, seen = at, seen + 1
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait(DEADLINE_S)
        writer.stdout.close()
    # it may have died in the middle of a post: then the one before is the newest
    at, tensors = reader.newer_than(PolicyVersion(0, 0))
    assert at >= known
    assert {float(x) for tensor in tensors.values() for x in tensor.ravel()} == {float(at.version)}
    assert reader.newer_than(at) is None
    reader.close()
    assert _open_files() == before
