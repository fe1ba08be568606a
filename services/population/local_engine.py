"""Members as processes of this machine, as many at a time as its cores bear."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from aclearn.config import Config
from aclearn.files import disk_is_full
from aclearn.launch import EXIT_GIVE_UP, RoleCommand, StopFlag, describe_exit
from aclearn.launch.log_tail import log_tail
from aclearn.launch.role_process import RoleProcess, end_processes
from services.launcher.seed_runs import runs_at_once
from services.monitor.run_clock import STARTED_AT_VARIABLE, moment
from services.population.engine import EXIT_DISK_FULL, DiskFull, Outcome, Task
from services.population.member import dead, read_outcome

_LOOK_EVERY_S: Final = 0.1
#: Seconds until a process that could not be started is tried again.
_START_AGAIN_S: Final = 1.0
#: Seconds for a member beyond its `supervisor.stop_timeout_s`.
_END_S: Final = 1.5
#: -P: the current folder does not hide modules, as for roles.
_PROGRAM: Final = (sys.executable, "-P", "-m", "services.population.member")


class LocalEngine:
    """Each member's round is a process with a session of its own, and ends with this one.

    A process that dies is started again, at most `supervisor.max_restarts` times in a round; its
    run continues from its newest checkpoint. A run that fails by itself is not: it has ended in
    order.

    Args:
        at_once: most members at a time; None: as the cores allow.

    Raises:
        ConfigError: more than one at a time would listen at one port.
    """

    def __init__(self, config: Config, stop: StopFlag, at_once: int | None = None) -> None:
        self._at_once = runs_at_once(config, at_once)
        self._most_restarts = config.supervisor.max_restarts
        self._end_within_s = config.supervisor.stop_timeout_s + _END_S
        self._running: dict[int, _Running] = {}

    @property
    def at_once(self) -> int:
        """Most members at a time."""
        return self._at_once

    def run(self, tasks: Sequence[Task], stop: StopFlag) -> Iterator[Outcome]:
        """Train and judge; see `Engine`."""
        waiting = [_Running(task) for task in tasks]
        try:
            while (waiting or self._running) and not stop:
                while waiting and len(self._running) < self._at_once:
                    begun = waiting.pop(0)
                    try:
                        begun.start()
                    except OSError as error:
                        if disk_is_full(error):
                            raise DiskFull(begun.task.folder) from error
                        if begun.restarts < self._most_restarts:  # no process is left, perhaps
                            begun.restarts += 1
                            waiting.append(begun)
                            time.sleep(_START_AGAIN_S)
                            break
                        task, detail = begun.task, f"cannot be started: {error}"
                        yield dead(task.folder, task.member, "failed", detail, begun.restarts)
                        continue
                    self._running[begun.task.member] = begun
                for running in list(self._running.values()):
                    if running.process.exited():
                        del self._running[running.task.member]
                        outcome = self._judge(running)
                        if outcome is None:
                            waiting.insert(0, running)
                        else:
                            yield outcome
                time.sleep(_LOOK_EVERY_S)
        finally:
            self._end(stop)

    def _judge(self, running: _Running) -> Outcome | None:
        """The outcome of a member whose process has ended; None: it is started again."""
        code, task = running.process.reap(), running.task
        outcome = read_outcome(task.folder, task.round)
        if outcome is not None:
            return replace(outcome, restarts=running.restarts)
        if code == EXIT_DISK_FULL:
            raise DiskFull(task.folder)
        if code != EXIT_GIVE_UP and running.restarts < self._most_restarts:
            running.restarts += 1
            return None
        detail = f"{describe_exit(code)}: {running.last_words}"
        return dead(task.folder, task.member, "failed", detail, running.restarts)

    def _end(self, stop: StopFlag) -> None:
        """End the members that run, with a checkpoint, by the signal that this process got."""
        number = signal.Signals.__members__.get(stop.reason or "", signal.SIGTERM)
        for running in self._running.values():
            running.process.terminate(number)
        deadline = time.monotonic() + self._end_within_s
        while time.monotonic() < deadline and not stop.forced:
            if all(running.process.exited() for running in self._running.values()):
                break
            time.sleep(_LOOK_EVERY_S)
        left = {f"member-{number}": each.process for number, each in self._running.items()}
        end_processes(left, 0.0, lambda: True)
        self._running = {}

    def close(self) -> None:
        """Nothing: no process outlives `run`."""


class _Running:
    """A member's process in this round."""

    def __init__(self, task: Task) -> None:
        self.task, self.restarts = task, 0
        self.process: RoleProcess

    def start(self) -> None:
        task = self.task
        argv = (*_PROGRAM, str(task.folder), str(task.member), str(task.round))
        self.process = RoleProcess(
            RoleCommand(
                "member",
                task.folder.name,
                argv,
                {STARTED_AT_VARIABLE: str(moment(time.monotonic()))},
                task.folder / "logs" / "member.log",
            ),
            self.restarts,
        )

    @property
    def last_words(self) -> str:
        """The last line of its log."""
        said = log_tail(self.task.folder / "logs" / "member.log", start=self.process.log_start)
        return said.rpartition("\n")[2] or "its log is empty"
