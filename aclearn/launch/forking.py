"""The program of a fork server: it forks as it is told, and each fork becomes a role."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any, Final

from aclearn.launch.parent_death import signal_at_parent_death, watch_supervisor
from aclearn.launch.role_command import PARENT_PID_VARIABLE

#: A request: "S" to start, or "R" to reap this process. The answer: a process id or exit status,
#: and the number of an error.
REQUEST, ANSWER = struct.Struct("<ci"), struct.Struct("<ii")
START, REAP = b"S", b"R"
#: Bytes reserved for a role's command line, as the system shows it.
COMMAND_BYTES: Final = 1024


def become_fork(connection: socket.socket) -> list[str] | None:
    """In the server, after its imports: fork as told until the other end closes.

    Returns:
        In each fork the arguments of its role; in the server, at the end, None.
    """
    supervisor = os.pidfd_open(os.getppid())
    signal_at_parent_death(signal.SIGKILL)
    # a fork has no other threads: a lock that one holds would stay locked
    alone = len(os.listdir("/proc/self/task")) == 1
    if os.getppid() != int(os.environ[PARENT_PID_VARIABLE]) or not alone:
        return None
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which a service manager sends to all
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would lose the exit statuses
    gc.freeze()  # a collection would write to the shared pages
    while True:
        try:
            request, files, _, _ = socket.recv_fds(connection, REQUEST.size, 2)
        except ConnectionError:
            return None
        if not request:
            return None
        kind, pid = REQUEST.unpack(request)
        value, error = 0, 0
        try:
            value = _status_of(pid) if kind == REAP else _fork()
        except OSError as reason:
            error = reason.errno or errno.EIO
        if kind == START and value == error == 0:  # this is the fork
            connection.close()
            watch_supervisor(supervisor)
            return _take_place(*files)
        for file in files:
            os.close(file)
        connection.sendall(ANSWER.pack(value, error))


def _status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork() -> int:
    """As `os.fork`; returns when the fork leads a session, or has died."""
    ready, leads = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # one in between waits
    try:
        if (pid := os.fork()) == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.close(leads)
    try:
        if pid:
            os.read(ready, 1)  # ends when the fork's copy of the other end is closed
    finally:
        os.close(ready)
    return pid


def _take_place(file: int, log: int) -> list[str]:
    """Make this fork what a new process of the role would be; returns the role's arguments."""
    with os.fdopen(file, "rb") as text:
        text.seek(0)
        role: dict[str, Any] = json.load(text)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    os.environ.clear()
    os.environ.update(role["environment"])
    if role["folder"] is not None:
        os.chdir(role["folder"])
    sys.orig_argv = [*role["argv"]]
    with contextlib.suppress(OSError, ValueError, IndexError):  # an emulated system
        _show(role["argv"])
    return list(role["arguments"])


def _show(argv: list[str]) -> None:
    """Let `ps` show this command line, in the memory of the server's own."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5)
    if not 0 < begin < end - COMMAND_BYTES:
        return
    words = "\0".join(argv).encode(errors="surrogateescape")[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, words, len(words))
