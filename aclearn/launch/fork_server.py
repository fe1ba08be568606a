"""Roles forked from a process that has their imports, which cost most of a role's start.

The server is a child that imports what all roles need, has one thread and waits for requests. Each
fork takes the environment, folder, log and arguments of its role. The roles share the pages of the
imports. They end with the process that started the server, and outlive the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from aclearn.files import open_to_write
from aclearn.launch.forking import ANSWER, COMMAND_BYTES, REAP, REQUEST, START
from aclearn.launch.role_command import RoleCommand, child_environment
from aclearn.launch.role_process import REAP_WITHIN_S, Process, RoleProcess, describe_exit

#: Longest wait for an answer; the first comes after the imports.
_ANSWER_WITHIN_S: Final = 60.0
#: Taken for the exit status of a fork that only a dead server knew.
_LOST_STATUS: Final = -int(signal.SIGKILL)


class ForkServer:
    """Starts roles as forks of one process. Use it as a context: the end kills the server.

    Where it cannot fork, since it has died or was not started, or the system has no descriptors of
    processes as Linux has, a role is started as a `RoleProcess`.

    Args:
        module: of the server's program, which calls `become_fork`.
        program: the start of the command lines that a fork stands for; others are started.
    """

    def __init__(self, module: str, program: tuple[str, ...]) -> None:
        self._program = program
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if _has_process_descriptors():
            try:
                self._open(module)
            except OSError:  # no process or file is left: the roles say so
                self._give_up()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_up()

    @property
    def alive(self) -> bool:
        """Whether it can fork, and keeps the process ids of its forks until they are reaped."""
        return self._socket is not None

    def start(self, command: RoleCommand, restarts: int) -> Process:
        """Start a role, given the number of its earlier starts.

        Raises:
            OSError: its log cannot be opened, or the system has no process left.
        """
        if not self.alive or command.argv[: len(self._program)] != self._program:
            return RoleProcess(command, restarts)
        role = {
            "argv": command.argv,
            "arguments": command.argv[len(self._program) :],
            "environment": command.full_environment(restarts),
            "folder": _folder(),
        }
        command.log_path.parent.mkdir(parents=True, exist_ok=True)
        with (
            os.fdopen(open_to_write(command.log_path, os.O_APPEND), "ab") as log,
            # in memory; an environment may be longer than a packet
            os.fdopen(os.memfd_create("role"), "wb") as file,
        ):
            log_start = log.tell()
            file.write(json.dumps(role).encode())
            file.flush()
            pid = self._ask(START, files=(file.fileno(), log.fileno()))
        if pid is None:
            return RoleProcess(command, restarts)
        try:
            return _Fork(self, pid, log_start)
        except OSError:  # too many open files
            os.killpg(pid, signal.SIGKILL)
            self.reap(pid)
            raise

    def reap(self, pid: int) -> int:
        """The exit status of a fork that has exited; minus the number of a signal."""
        try:
            status = self._ask(REAP, pid)
        except OSError:  # it was reaped elsewhere
            status = None
        return _LOST_STATUS if status is None else status

    def _open(self, module: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_WITHIN_S)
        with theirs:
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-m", module, str(theirs.fileno()), " " * COMMAND_BYTES),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a role that imports by itself shows the error
                # before the imports: thread pools of the mathematics read this once
                env={**child_environment(), "OMP_NUM_THREADS": "1"},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def _ask(self, kind: bytes, pid: int = 0, files: tuple[int, ...] = ()) -> int | None:
        """The answer to a request; None if the server has died, or was killed for its silence."""
        if self._socket is None:
            return None
        try:
            socket.send_fds(self._socket, [REQUEST.pack(kind, pid)], files)
            answer = self._socket.recv(ANSWER.size)
        except OSError:
            answer = b""
        if not answer:
            self._give_up()
            return None
        value, error = ANSWER.unpack(answer)
        if error:
            raise OSError(error, os.strerror(error))
        return int(value)

    def _give_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a hanging device
                self._process.wait(REAP_WITHIN_S)


class _Fork:
    """A fork of the server, as a `Process`."""

    def __init__(self, server: ForkServer, pid: int, log_start: int) -> None:
        self.pid: int | None = pid
        self.log_start = log_start
        self._server, self._pid = server, pid
        # it cannot be another's: the server reaps it only when it is told
        self._descriptor = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._exited = False

    def exited(self, within_s: float = 0.0) -> bool:
        """Whether it has ended, or ends within this time."""
        self._exited = self._exited or bool(self._poll.poll(within_s * 1e3))
        return self._exited

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Ask it by a signal to end in order."""
        if not self.exited():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """SIGKILL it and the rest of its process group."""
        if self.exited() and not self._server.alive and Path(f"/proc/{self._pid}").exists():
            return  # it is reaped, and its id is another process's
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty
            os.killpg(self._pid, signal.SIGKILL)

    def reap(self) -> int:
        """The exit status of a fork that has exited, or is killed now with its whole group.

        Call it once: afterwards the pid may be reused.

        Raises:
            subprocess.TimeoutExpired: the kernel does not release it (a hanging device).
        """
        self.kill()
        if not self.exited(REAP_WITHIN_S):
            raise subprocess.TimeoutExpired(f"process {self._pid}", REAP_WITHIN_S)
        status = self._server.reap(self._pid)
        os.close(self._descriptor)
        return status

    def ending(self, code: int) -> str:
        """What `reap` gave, as text."""
        return describe_exit(code)


def _has_process_descriptors() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # another system, an older kernel, a sandbox
        return False
    return True


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None
