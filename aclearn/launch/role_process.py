"""One start of a role: a process in its own session, with its children."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from aclearn.files import open_to_write
from aclearn.launch.role_command import RoleCommand

_LOGGER = logging.getLogger(__name__)

#: Time limit for the kernel to release a killed process; only a hanging device exceeds it.
REAP_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.01


class Process(Protocol):
    """One start of a role, here or elsewhere.

    Attributes:
        pid: of its process; None where it is not known yet.
        log_start: size in bytes of the role's log when it was started.
    """

    pid: int | None
    log_start: int

    def exited(self) -> bool:
        """Whether it has ended; never blocks."""

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Ask it by a signal to end in order."""

    def kill(self) -> None:
        """SIGKILL it and its children; may be repeated."""

    def reap(self) -> int:
        """The exit status, once it has exited or was killed; minus the number of a signal.

        Raises:
            subprocess.TimeoutExpired: the kernel does not release it.
        """

    def ending(self, code: int) -> str:
        """What `reap` gave, as text."""


class RoleProcess:
    """A child, started by the constructor.

    Attributes:
        pid: of the child, also the id of its process group and session.
        log_start: size in bytes of the log when the child was started.

    Raises:
        OSError: the program or its log cannot be opened, or the system has no process left.
    """

    def __init__(self, command: RoleCommand, restarts: int) -> None:
        command.log_path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(open_to_write(command.log_path, os.O_APPEND), "ab") as log:
            self.log_start = log.tell()
            self._process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=command.full_environment(restarts),
                start_new_session=True,
            )
        self.pid: int | None = self._process.pid

    def exited(self) -> bool:
        """Whether the child has ended; never blocks and does not reap it."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is not None
        # WNOWAIT keeps the zombie and its pid, so that `kill` cannot hit another group
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        except ChildProcessError:  # reaped elsewhere
            return True

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Ask the child by a signal to end in order; it ends its own children."""
        if not self.exited():
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL the child and the rest of its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty
            os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self) -> int:
        """The exit status of a child that has exited, or is killed now with its whole group.

        Call it once: afterwards the pid may be reused.

        Returns:
            The status, or minus the number of the signal that ended it.

        Raises:
            subprocess.TimeoutExpired: the kernel does not release the child (a hanging device).
        """
        self.kill()
        return self._process.wait(timeout=REAP_WITHIN_S)

    def ending(self, code: int) -> str:
        """What `reap` gave, as text."""
        return describe_exit(code)


def end_processes(
    living: Mapping[str, Process], timeout_s: float, forced: Callable[[], bool]
) -> list[str]:
    """SIGTERM to all; SIGKILL to the rest after `timeout_s`, or once `forced` gives True.

    Returns:
        Names of the killed processes.
    """
    for process in living.values():
        process.terminate()
    deadline = time.monotonic() + timeout_s
    while not all(process.exited() for process in living.values()):
        if time.monotonic() >= deadline or forced():
            break
        time.sleep(_LOOK_EVERY_S)
    late = [name for name, process in living.items() if not process.exited()]
    for process in living.values():
        process.kill()
    for name, process in living.items():
        try:
            code = process.reap()
        except subprocess.TimeoutExpired:
            # a hanging device delays SIGKILL; the others must still be reaped
            _LOGGER.error("event=role_not_reaped name=%s pid=%s", name, process.pid)
            continue
        _LOGGER.info("event=role_stopped name=%s exit=%d killed=%s", name, code, name in late)
    return late


def describe_exit(code: int) -> str:
    """`subprocess`'s exit code as text, e.g. "exit status 3" or "killed by SIGSEGV"."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code == signal.SIGKILL:
        return f"killed by {name}, not by the supervisor: perhaps the machine ran out of memory"
    return f"killed by {name}"
