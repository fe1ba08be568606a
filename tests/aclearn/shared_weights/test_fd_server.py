"""The server of file descriptors, with misbehaving clients."""

from __future__ import annotations

import os
import socket
import threading
import time

import numpy as np
import pytest

from aclearn.errors import SharingError
from aclearn.shared_weights import FileDescriptorServer, HostMemory, request_fds
from tests.support.waiting import DEADLINE_S


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def memory():
    memory = HostMemory.create(4)
    memory.floats[:] = [1, 2, 3, 4]
    yield memory
    memory.close()


@pytest.fixture
def fd_server(tmp_path, memory):
    fd_server = FileDescriptorServer(
        tmp_path / "x.fds", lambda: b"four numbers", lambda: [memory.share()]
    )
    yield fd_server
    fd_server.close()


def test_a_request_gets_the_description_and_files_of_the_same_memory(
    tmp_path, fd_server, memory
) -> None:
    description, [fd] = request_fds(tmp_path / "x.fds")
    assert description == b"four numbers"
    mine = HostMemory(fd, 4)
    os.close(fd)
    assert mine.floats.tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="read-only"):
        mine.floats[0] = 5
    memory.floats[2] = 30
    assert mine.read(1, 2).tolist() == [2, 30]
    mine.close()


def test_nothing_stays_open_however_many_requests_come(tmp_path, fd_server) -> None:
    before = _open_files() + 1  # the server's side of the last connection may still be closing
    for _ in range(50):
        for fd in request_fds(tmp_path / "x.fds")[1]:
            os.close(fd)
    end = time.monotonic() + DEADLINE_S
    while _open_files() > before:
        assert time.monotonic() < end, _open_files() - before


def test_a_client_that_never_reads_does_not_keep_others_waiting_long(tmp_path, memory) -> None:
    # first a description larger than any socket buffer: the server waits until it is read, but not
    # forever
    descriptions = [b"x" * 50_000_000]

    def describe() -> bytes:
        return descriptions.pop() if descriptions else b"small"

    fd_server = FileDescriptorServer(tmp_path / "x.fds", describe, lambda: [memory.share()])
    try:
        with socket.socket(socket.AF_UNIX) as lazy, socket.socket(socket.AF_UNIX) as gone:
            lazy.connect(str(tmp_path / "x.fds"))
            assert lazy.recv(1)  # it is being served
            gone.connect(str(tmp_path / "x.fds"))
            gone.close()
            description, fds = request_fds(tmp_path / "x.fds", timeout_s=DEADLINE_S)
            assert description == b"small"
            for fd in fds:
                os.close(fd)
    finally:
        fd_server.close()


def test_a_closed_fd_server_and_one_that_never_was_are_refused(tmp_path, memory) -> None:
    fd_server = FileDescriptorServer(tmp_path / "x.fds", lambda: b"", lambda: [])
    fd_server.close()
    assert not (tmp_path / "x.fds").exists()
    for path in (tmp_path / "x.fds", tmp_path / ("y" * 200)):
        with pytest.raises(SharingError, match=str(path)):
            request_fds(path)


def test_a_place_that_cannot_be_bound_is_refused(tmp_path) -> None:
    (tmp_path / "x.fds").write_text("somebody's")
    before = _open_files()
    with pytest.raises(SharingError, match=r"cannot bind .*x\.fds"):
        FileDescriptorServer(tmp_path / "x.fds", lambda: b"", lambda: [])
    assert _open_files() == before


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"", "the server sent no file descriptors"),
        (b"\0\0", "the server sent no file descriptors"),
        (b"\xff\xff\xff\xff", "a description of 4294967295 bytes"),
        (b"\0\0\0\5abc", "the description ended early"),
    ],
)
def test_what_is_no_fd_server_is_refused(tmp_path, said, message) -> None:
    path = tmp_path / "x.fds"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SharingError, match=message):
            request_fds(path, timeout_s=DEADLINE_S)
        thread.join(DEADLINE_S)


def test_a_fd_server_that_is_short_of_files_for_a_while_goes_on(
    tmp_path, memory, monkeypatch, caplog
) -> None:
    refused = [OSError(24, "Too many open files")]
    shared = [OSError(24, "Too many open files")]
    accept = socket.socket.accept

    def short_of_files(listener):
        if refused:
            raise refused.pop()
        return accept(listener)

    def share() -> list[int]:
        if shared:
            raise shared.pop()
        return [memory.share()]

    monkeypatch.setattr(socket.socket, "accept", short_of_files)
    fd_server = FileDescriptorServer(tmp_path / "x.fds", lambda: b"d", share)
    try:
        with pytest.raises(SharingError, match="the server sent no file descriptors"):
            request_fds(tmp_path / "x.fds", timeout_s=DEADLINE_S)
        description, fds = request_fds(tmp_path / "x.fds", timeout_s=DEADLINE_S)
        assert (description, len(fds), fd_server.failures) == (b"d", 1, 2)
        os.close(fds[0])
    finally:
        fd_server.close()
    assert "event=fd_server_failed" in caplog.text and "Too many open files" in caplog.text


def test_host_memory_cannot_be_made_shorter_by_a_process_that_maps_it() -> None:
    memory = HostMemory.create(1024)
    fd = memory.share()
    for size in (0, 4096 * 4):
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(fd, size)
    os.close(fd)
    assert memory.read(1000, 24).tolist() == np.zeros(24).tolist()
    memory.close()
    memory.close()
    with pytest.raises(ValueError, match="closed"):
        memory.read(0, 1)
