"""Starts, restarts and ends a set of role processes."""

from __future__ import annotations

import errno
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from aclearn.errors import RoleFailure
from aclearn.launch.log_tail import log_ending
from aclearn.launch.restart_policy import RestartPolicy
from aclearn.launch.role_command import (
    EXIT_GIVE_UP,
    Event,
    EventKind,
    RoleCommand,
    RoleStatus,
    State,
)
from aclearn.launch.role_process import Process, RoleProcess, describe_exit, end_processes

_LOGGER = logging.getLogger(__name__)

#: Seconds for the orderly end of a role that is removed.
_LEAVE_WITHIN_S = 10.0
#: Errors of a program or log file that a restart cannot help.
_LASTING = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP)


@dataclass
class _Slot:
    """A role and its state."""

    command: RoleCommand
    restart_policy: RestartPolicy
    state: State = "new"
    process: Process | None = None
    log_start: int | None = None  # of its newest process; None if that could not be started
    restarts: int = 0
    due: float = 0.0  # waiting: when to restart; leaving: when to kill
    kill_reason: str | None = None


class Supervisor:
    """Starts roles, restarts dead ones with doubling delays, and leaves no process behind.

    Every role runs in its own session: Ctrl-C at the terminal reaches only the supervisor. When a
    role ends, the rest of its process group is killed. Restarts are counted per role.

    A role that exits while the run continues has died, whatever its status. After status 0 it may
    have learned that the run is over: it is "ended" until the caller decides with `expect_end` or
    `count_as_death`.

    Unknown names raise ValueError. Call all methods from the main thread: for the kernel, the end
    of the thread that started a child is the parent's death. Call `stop` in a `finally`, also after
    `start` or `poll` raised.

    Args:
        max_restarts: restarts of one role allowed within the window.
        start_process: starts a role, given its command and the number of its earlier starts.
    """

    def __init__(
        self,
        commands: Sequence[RoleCommand],
        *,
        max_restarts: int,
        restart_window_s: float,
        backoff_first_s: float,
        backoff_max_s: float,
        start_process: Callable[[RoleCommand, int], Process] = RoleProcess,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._new_restart_policy: Callable[[], RestartPolicy] = partial(
            RestartPolicy, max_restarts, restart_window_s, backoff_first_s, backoff_max_s
        )
        self._start_process, self._clock = start_process, clock
        self._slots: dict[str, _Slot] = {}
        #: Earlier starts by name; a removed role may be added again.
        self._starts: Counter[str] = Counter()
        self._events: list[Event] = []
        self._failures: list[RoleFailure] = []
        self._phase: Literal["new", "running", "ending", "stopped"] = "new"
        for command in commands:
            self.add(command)

    @property
    def finished(self) -> bool:
        """Whether there are roles and all are done, or failed if optional.

        After `expect_end` every role may fail.
        """
        return bool(self._slots) and all(
            slot.state in ("done", "stopped")
            or (slot.state == "failed" and (slot.command.optional or self._phase == "ending"))
            for slot in self._slots.values()
        )

    def roles(self) -> list[RoleStatus]:
        """The table of roles, in the order of their addition."""
        return [
            RoleStatus(
                s.command.role, name, s.state, s.restarts, s.process.pid if s.process else None
            )
            for name, s in self._slots.items()
        ]

    def start(self) -> None:
        """Start every role. The next `poll` returns the events.

        Raises:
            RoleFailure: a role's program cannot be started.
            RuntimeError: it was started or stopped before.
        """
        if self._phase != "new":
            raise RuntimeError(f"start() called on a supervisor that is {self._phase}")
        self._phase = "running"
        for slot in self._slots.values():
            self._spawn(slot)
        self._raise_failure()

    def poll(self) -> list[Event]:
        """The events since the last call; reaps dead roles and starts due ones. Never blocks.

        Raises:
            RoleFailure: a role died more often than allowed, or exited with EXIT_GIVE_UP; with its
                name, its exit and the end of its log. Each failure is raised once; the next call
                returns the events of this one.
        """
        for slot in list(self._slots.values()):
            if slot.state in ("running", "leaving"):
                self._look_at(slot)
            elif slot.state == "waiting" and self._clock() >= slot.due:
                slot.restarts += 1
                self._spawn(slot)
        self._raise_failure()
        events, self._events = self._events, []
        return events

    def expect_end(self) -> None:
        """The run is over: from now on a role that exits is done, and none is started again."""
        if self._phase != "running":
            return
        self._phase = "ending"
        for slot in self._slots.values():
            if slot.state == "ended":
                slot.state = "done"
                self._tell(slot, "done", describe_exit(0))
            elif slot.state == "waiting":
                slot.state = "stopped"

    def count_as_death(self, name: str) -> None:
        """Take an "ended" role for dead, so that `poll` restarts it."""
        slot = self._slot(name)
        if slot.state == "ended":
            self._died(slot, describe_exit(0))

    def kill(self, name: str, reason: str) -> bool:
        """SIGKILL a role, e.g. because it is silent; `poll` restarts it and counts the failure.

        Returns:
            Whether there was a process to kill.
        """
        slot = self._slot(name)
        if slot.process is None:
            return False
        slot.kill_reason = reason
        slot.process.kill()
        return True

    def add(self, command: RoleCommand) -> None:
        """Add a role; it is started at once if the supervisor runs.

        Raises:
            ValueError: the name is taken.
            RoleFailure: its program cannot be started.
            RuntimeError: the run is over or the supervisor is stopped.
        """
        if command.name in self._slots:
            raise ValueError(f"role name {command.name!r} is taken; each role needs its own")
        if self._phase in ("ending", "stopped"):
            raise RuntimeError(
                f"add({command.name!r}) called on a supervisor that is {self._phase}"
            )
        slot = _Slot(command, self._new_restart_policy())
        self._slots[command.name] = slot
        if self._phase == "running":
            self._spawn(slot)
            self._raise_failure()

    def remove(self, name: str) -> None:
        """End a role: SIGTERM now, SIGKILL by `poll` after ten seconds. Never blocks.

        The name is free again after the event "removed".
        """
        slot = self._slot(name)
        if slot.process is None:
            self._forget(slot, "it was not running")
        elif slot.state != "leaving":
            slot.state, slot.due = "leaving", self._clock() + _LEAVE_WITHIN_S
            slot.process.terminate()

    def stop(self, timeout_s: float, *, forced: Callable[[], bool] = lambda: False) -> list[str]:
        """End every role: SIGTERM to all, SIGKILL to the rest at the deadline. May be repeated.

        Waits in real time, whatever the supervisor's clock is.

        Args:
            forced: polled meanwhile; True ends the wait (`StopFlag.forced`).

        Returns:
            Names of the killed roles.
        """
        self._phase = "stopped"
        living = {n: s.process for n, s in self._slots.items() if s.process is not None}
        late = end_processes(living, timeout_s, forced)
        for slot in self._slots.values():
            slot.process = None
            if slot.state not in ("done", "failed"):
                slot.state = "stopped"
        return late

    def _slot(self, name: str) -> _Slot:
        try:
            return self._slots[name]
        except KeyError:
            known = ", ".join(self._slots) or "none"
            raise ValueError(f"no role is named {name!r}; there are: {known}") from None

    def _spawn(self, slot: _Slot) -> None:
        try:
            slot.log_start = None
            slot.process = self._start_process(slot.command, self._starts[slot.command.name])
        except OSError as error:
            # out of processes, memory or disk: may be temporary
            tell = self._fail if error.errno in _LASTING else self._died
            tell(slot, f"cannot be started: {error}")
            return
        self._starts[slot.command.name] += 1
        slot.state, slot.log_start = "running", slot.process.log_start
        again = f", restart {slot.restarts}" if slot.restarts else ""
        where = "not placed yet" if slot.process.pid is None else f"pid {slot.process.pid}"
        self._tell(slot, "restarted" if slot.restarts else "started", f"{where}{again}")

    def _look_at(self, slot: _Slot) -> None:
        process = slot.process
        if process is None:
            return
        if not process.exited():
            if slot.state == "leaving" and self._clock() >= slot.due and slot.kill_reason is None:
                self.kill(slot.command.name, "did not leave in time")
            return
        code = process.reap()
        slot.process = None
        killed, slot.kill_reason = slot.kill_reason, None
        how = f"killed: {killed}" if killed else process.ending(code)
        if slot.state == "leaving":
            self._forget(slot, how)
        elif self._phase == "ending":
            # 128 and more: by a signal, which may have reached both the role and this process
            in_order = code == 0 or code > 128
            slot.state = "done" if in_order else "failed"
            self._tell(slot, "done" if in_order else "died", how)
        elif code == 0:
            slot.state = "ended"
        elif code == EXIT_GIVE_UP:
            self._fail(slot, "gave up: a restart cannot help")
        else:
            self._died(slot, how, killed=killed is not None)

    def _died(self, slot: _Slot, how: str, *, killed: bool = False) -> None:
        delay_s = slot.restart_policy.failed(self._clock())
        if delay_s is None:
            self._fail(slot, f"{how}; no restart is left after {slot.restarts}")
            return
        slot.state, slot.due = "waiting", self._clock() + delay_s
        again = f"restart {slot.restarts + 1} in {delay_s:.3g} s"
        self._tell(slot, "killed" if killed else "died", f"{how}; {again}")

    def _fail(self, slot: _Slot, how: str) -> None:
        slot.state = "failed"
        if slot.command.optional:
            self._tell(slot, "died", f"{how}; the others continue, see {slot.command.log_path}")
            return
        self._tell(slot, "died", how)
        text = f"{slot.command.name}: {how}"
        if slot.log_start is not None:
            text += f"\n{log_ending(slot.command.log_path, start=slot.log_start)}"
        self._failures.append(RoleFailure(text))

    def _forget(self, slot: _Slot, how: str) -> None:
        del self._slots[slot.command.name]
        self._tell(slot, "removed", how)

    def _tell(self, slot: _Slot, kind: EventKind, detail: str) -> None:
        _LOGGER.info('event=role_%s name=%s detail="%s"', kind, slot.command.name, detail)
        self._events.append(Event(slot.command.name, kind, detail))

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures.pop(0)
