"""Runs of several seeds: `aclearn train` commands as processes of this one, some at a time."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aclearn.config import Config
from aclearn.errors import ConfigError, RunFolderError
from aclearn.launch import RoleCommand, StopFlag, describe_exit
from aclearn.launch.log_tail import log_tail
from aclearn.launch.role_process import RoleProcess, end_processes
from aclearn.runs import MetricsTail
from aclearn.telemetry.cores import usable_cores
from aclearn.views.console import RunConsole
from aclearn.views.seeds_console import SeedsConsole
from services.monitor.run_clock import STARTED_AT_VARIABLE, moment
from services.roles import COMPRESSOR, MONITOR, ROLES, TRAINER, RoleSpec

_LOOK_EVERY_S = 0.1
#: Seconds for a run beyond its `supervisor.stop_timeout_s`, of which it needs about one.
_END_S = 1.5


def runs_at_once(config: Config, wanted: int | None = None) -> int:
    """The number of runs at a time: `wanted`, else as many as this machine has cores for.

    Each process but the monitor counts by its threads. A run in lock-step is one process.

    Raises:
        ConfigError: more than one are wanted, and would listen at one port.
    """
    if (port := config.monitor.port) is not None:
        if wanted is not None and wanted > 1:
            raise ConfigError(
                f"--at-once: {wanted} runs at a time cannot listen at one monitor.port, {port}; "
                "leave --at-once out, or set monitor.port=null"
            )
        return 1
    return wanted or max(1, usable_cores() // cores_of(config))


def cores_of(config: Config) -> int:
    """The number of cores that a run keeps busy."""
    used = sum(
        spec.processes(config) * busy_threads(spec, config)
        for spec in ROLES.values()
        if spec is not MONITOR
    )
    return 1 if config.run.deterministic else max(1, used)


def busy_threads(spec: RoleSpec, config: Config) -> int:
    """Threads that keep a core busy in one process of the role."""
    resident = config.resident
    if spec is COMPRESSOR:
        return math.ceil(config.compressor.cpu_share)
    if spec is not TRAINER:
        return spec.threads(config)
    if resident.envs is None:
        return config.trainer.workers
    return 1 if resident.device.startswith("cuda") else resident.threads or usable_cores()


@dataclass
class SeedRun:
    """A run of one seed.

    Attributes:
        argv: program and arguments; no shell.
        failed: how it ended, if not in order; None otherwise.
    """

    folder: Path
    argv: tuple[str, ...]
    failed: str | None = None

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def log_path(self) -> Path:
        """The file with the command's output."""
        return self.folder.with_name(f"{self.name}.log")


class SeedRuns:
    """Runs the commands in order, at most `at_once` at a time.

    Each has a session of its own and ends in order when this process dies. One that fails changes
    nothing for the others.

    Args:
        stop: ends those that run, by its own signal; no other is started.
        words: give the result of a run that has ended in order.
        stop_timeout_s: `supervisor.stop_timeout_s` of the runs.
    """

    def __init__(
        self,
        runs: Sequence[SeedRun],
        *,
        at_once: int,
        stop: StopFlag,
        console: SeedsConsole,
        words: Callable[[SeedRun], str],
        stop_timeout_s: float,
    ) -> None:
        self._waiting, self._at_once = list(runs), at_once
        self._stop, self._console, self._words = stop, console, words
        self._end_within_s = stop_timeout_s + _END_S
        self._running: dict[str, _Running] = {}

    def run(self) -> None:
        """Run until every command has ended, or `stop` is set and those that ran have ended."""
        try:
            while (self._waiting or self._running) and not self._stop:
                while self._waiting and len(self._running) < self._at_once:
                    self._start(self._waiting.pop(0))
                self._look()
                time.sleep(_LOOK_EVERY_S)
        finally:
            self._end()

    def _start(self, run: SeedRun) -> None:
        command = RoleCommand(
            "train",
            run.name,
            run.argv,
            {STARTED_AT_VARIABLE: str(moment(time.monotonic()))},  # not that of this command
            run.log_path,
        )
        console = self._console.console(run.name)
        try:
            process = RoleProcess(command, 0)
        except OSError as error:
            self._failed(run, f"cannot be started: {error}")
            return
        console.__enter__()
        self._running[run.name] = _Running(run, process, console)

    def _look(self) -> None:
        for name, running in list(self._running.items()):
            running.show()
            if running.process.exited():
                del self._running[name]
                self._judge(running, running.process.reap())

    def _judge(self, running: _Running, code: int) -> None:
        running.show()
        running.console.__exit__()
        run = running.run
        if code == 0:
            self._console.end(run.name, "ended", self._words(run))
        elif self._stop and code in (self._stop.exit_status, -self._number):
            self._console.end(run.name, "stopped", f"ended by {self._stop.reason}")
        else:
            said = log_tail(run.log_path, start=running.process.log_start)
            self._failed(run, f"{describe_exit(code)}: {_cause(said)}")

    @property
    def _number(self) -> int:
        """The signal that ends the commands."""
        return signal.Signals.__members__.get(self._stop.reason or "", signal.SIGTERM)

    def _failed(self, run: SeedRun, how: str) -> None:
        run.failed = how
        self._console.end(run.name, "failed", f"failed: {how}; see {run.log_path}")

    def _end(self) -> None:
        """End those that run by the signal that this process got; all at the deadline."""
        for running in self._running.values():
            running.process.terminate(self._number)
        deadline = time.monotonic() + self._end_within_s
        forced = False
        try:
            while self._running and time.monotonic() < deadline:
                self._look()
                time.sleep(_LOOK_EVERY_S)  # two signals at a time would be one
                if self._stop.forced and not forced:
                    forced = True
                    for running in self._running.values():
                        running.process.terminate(signal.SIGINT)
            for running in self._running.values():
                self._failed(running.run, f"it did not end within {self._end_within_s:g} s")
        finally:  # also after a third Ctrl-C, which is the caller's
            late = {name: running.process for name, running in self._running.items()}
            end_processes(late, 0.0, lambda: True)


class _Running:
    """A command's process, and the new lines of its metrics."""

    def __init__(self, run: SeedRun, process: RoleProcess, console: RunConsole) -> None:
        self.run, self.process, self.console = run, process, console
        self._tail = MetricsTail(run.folder / "metrics.jsonl")
        self._read()  # lines of an earlier part of a resumed run

    def show(self) -> None:
        """Show the lines since the last call."""
        for line in self._read():
            self.console.update(line, [])

    def _read(self) -> list[dict[str, Any]]:
        try:
            return self._tail.read()
        except RunFolderError:  # it has written none yet
            return []


def _cause(log: str) -> str:
    """The last message of a command in its log, else the last line."""
    lines = [line for line in log.splitlines() if line.strip()]
    told = [line.removeprefix("aclearn: ") for line in lines if line.startswith("aclearn: ")]
    return (told or lines or ["its log is empty"])[-1]
