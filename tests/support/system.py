"""Starts commands as real processes and waits for conditions, always with a deadline."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import yaml

from tests.support.metrics_lines import FIXED_NAMES, check_line, check_lines
from tests.support.waiting import wait_for

T = TypeVar("T")

#: Bytes of a line of metrics, at most: waits look at the newest one again and again.
_LONGEST_LINE = 65_536

#: Marks every process that a test starts, including orphans.
MARK_VARIABLE = "ACLEARN_SYSTEM_TEST"
#: Extensions of tests from outside the packages, one file each.
TOYS = Path(__file__).parent / "toys"

CARTPOLE: dict[str, Any] = {
    "run": {"name": "r", "metrics_every_s": 0.25, "checkpoint_every_s": 0.5},
    "env": {"id": "CartPole-v1"},
    "policy": {"architecture": "mlp", "hidden": [16]},
    "actors": {"processes": 2, "envs_per_group": 4, "unroll_length": 5},
    "trainer": {"device": "cpu", "unrolls_per_batch": 2},
    "monitor": {"heartbeat_every_s": 0.1},
    "supervisor": {"backoff_first_s": 0.1},
}
#: CartPole whose trainer steps the environments.
RESIDENT: dict[str, Any] = CARTPOLE | {
    "resident": {"envs": 64, "device": "cpu"},
    "actors": {"unroll_length": 8},
    "trainer": {"device": "cpu", "amp": "off"},
}
PONG: dict[str, Any] = {
    "run": {"name": "r", "metrics_every_s": 0.25},
    "env": {"id": "ALE/Pong-v5", "clip_rewards": True},
    "policy": {"architecture": "accerl-net3"},
    "actors": {"processes": 1, "envs_per_group": 4, "unroll_length": 5},
    "trainer": {"device": "cpu", "unrolls_per_batch": 2},
    "monitor": {"heartbeat_every_s": 0.1},
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Command:
    """One `aclearn` command as a process; its output goes to a file."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        output: Path,
        cwd: Path | None = None,
        *,
        within: Sequence[str] = (),
        # as the installed command, without the current folder first on its path
        program: Sequence[str] = ("-P", "-m", "aclearn"),
    ) -> None:
        self._output = output
        with output.open("ab") as sink:
            self.process = subprocess.Popen(
                [*within, sys.executable, *program, *arguments],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, *, within_s: float = 60.0) -> int:
        wait_for(
            lambda: self.process.poll() is not None,
            "it has ended",
            within_s=within_s,
            context=lambda: self.output,
        )
        return self.process.wait()


class Run(Command):
    """`aclearn train` and its run folder."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        output: Path,
        folder: Path,
        cwd: Path | None = None,
        *,
        within: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        super().__init__(arguments, environment, output, cwd, within=within)

    def lines(self) -> list[dict[str, Any]]:
        try:
            text = (self.folder / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def last(self) -> dict[str, Any]:
        try:
            with (self.folder / "metrics.jsonl").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_LINE))
                whole = file.read().split(b"\n")[:-1]
        except FileNotFoundError:
            whole = []
        if not whole:
            return dict.fromkeys(FIXED_NAMES, 0) | {"dropped_steps": {}}
        return json.loads(whole[-1])

    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    def log(self, name: str) -> str:
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(
        self, condition: Callable[[], T | None], what: str, *, within_s: float = 60.0
    ) -> T:
        """As `wait_for`; fails at once when the run ends."""

        def look() -> T | None:
            value = condition()
            if not value and self.process.poll() is not None:
                raise AssertionError(f"the run ended before: {what}\n{self.diagnosis()}")
            return value

        return wait_for(look, what, within_s=within_s, context=self.diagnosis)

    def wait_until_learning(self, *, beyond: int = 0) -> dict[str, Any]:
        self.wait_for(lambda: self.last()["learned_steps"] > beyond, f"learned more than {beyond}")
        return self.last()

    def pids(self) -> dict[str, int]:
        """Role name → process id, of the living roles."""
        found = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                command = child.cmdline()
                if "--name" in command and child.status() != psutil.STATUS_ZOMBIE:
                    found[command[command.index("--name") + 1]] = child.pid
            except psutil.NoSuchProcess:
                continue
        return found

    def kill_role(self, name: str) -> int:
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_for_new(self, name: str, old_pid: int, *, within_s: float = 20.0) -> int:
        return self.wait_for(
            lambda: (pid := self.pids().get(name)) and pid != old_pid and pid,
            f"{name} is started again",
            within_s=within_s,
        )

    def monitor_address(self) -> str:

        def look() -> str | None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                try:
                    command = child.cmdline()
                except psutil.NoSuchProcess:
                    continue
                if "--monitor" in command:
                    return command[command.index("--monitor") + 1]
            return None

        return self.wait_for(look, "a role is started")

    def finish(self, number: int = signal.SIGTERM, *, within_s: float = 10.0) -> dict[str, Any]:
        """End the run by a signal within the promised time; check its files and counts."""
        self.signal(number)
        assert self.wait(within_s=within_s) == 128 + number, self.diagnosis()
        return self.check_account()

    def check_account(self) -> dict[str, Any]:
        """Check every line, the summary and the checkpoint; returns the summary."""
        lines, summary = self.lines(), self.summary()
        check_lines(lines)
        check_line(summary)
        assert {name: lines[-1][name] for name in FIXED_NAMES} == {
            name: summary[name] for name in FIXED_NAMES
        }
        assert summary["wall_s"] > 0 and "reached_target_at_s" in summary
        return summary

    def diagnosis(self) -> str:
        parts = [f"--- output\n{self.output[-6000:]}"]
        for path in sorted((self.folder / "logs").glob("*.log")):
            parts.append(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}")
        lines = self.lines()
        if lines:
            parts.append(f"--- last line\n{lines[-1]}")
        return "\n".join(parts)


class System:
    """Starts the processes of one test.

    Attributes:
        folder: of the test's own files.
        sockets: TMPDIR of every process: remaining files are a leak.
        cwd: where commands are called; None for the tests' own.
    """

    def __init__(self, folder: Path, sockets: Path, mark: str) -> None:
        self.folder, self.sockets, self._mark = folder, sockets, mark
        self._commands: list[Command] = []
        self.cwd: Path | None = None
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(sockets),
            MARK_VARIABLE: mark,
            "COLUMNS": "200",
            "PYTHONPATH": os.pathsep.join(
                [str(Path(__file__).parents[2]), str(folder), os.environ.get("PYTHONPATH", "")]
            ),
        }

    def config(self, base: dict[str, Any], name: str = "c", **groups: Any) -> Path:
        """A configuration file: `base` with groups merged in; run.dir is the test's own."""
        merged = {group: dict(values) for group, values in base.items()}
        for group, values in groups.items():
            mapping = isinstance(values, dict)
            merged[group] = {**merged.get(group, {}), **values} if mapping else values
        merged["run"] = {"dir": str(self.folder / "runs"), **merged["run"]}
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(merged))
        return path

    def command(self, *arguments: str | Path) -> Command:
        words = [str(argument) for argument in arguments]
        command = Command(words, self.environment, self._next_output(), self.cwd)
        self._commands.append(command)
        return command

    def python(self, script: Path, *arguments: str | Path) -> Command:
        words = [str(argument) for argument in arguments]
        command = Command(
            words, self.environment, self._next_output(), self.cwd, program=[str(script)]
        )
        self._commands.append(command)
        return command

    def train(self, config: Path, *arguments: str, within: Sequence[str] = ()) -> Run:
        """Start `aclearn train`, by the command `within` if there is one."""
        values = yaml.safe_load(config.read_text())["run"]
        values |= dict(a.removeprefix("run.").split("=", 1) for a in arguments if "run." in a)
        folder = Path(values["dir"]) / str(values["name"])
        return self._run(["train", str(config), *arguments], folder, within)

    def role(
        self, role: str, config: Path, monitor: str, *arguments: str, within: Sequence[str] = ()
    ) -> Run:
        """Start one role by hand; `within` is a prefix that runs it elsewhere."""
        values = yaml.safe_load(config.read_text())["run"]
        folder = Path(values["dir"]) / str(values["name"])
        command = ["role", role, str(config), "--monitor", monitor, *arguments]
        return self._run(command, folder, within)

    def living(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK_VARIABLE) == self._mark:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # ended, or another user's
        return found

    def wait_until_nothing_lives(self, *, within_s: float) -> None:
        wait_for(
            lambda: not self.living(),
            "every process has ended",
            within_s=within_s,
            context=lambda: "\n".join(" ".join(p.cmdline()) for p in self.living()),
        )

    def kill_everything(self) -> None:
        for process in self.living():
            process.kill()
        for command in self._commands:
            command.wait(within_s=10.0)

    def _run(self, arguments: list[str], folder: Path, within: Sequence[str] = ()) -> Run:
        output = self._next_output()
        run = Run(arguments, self.environment, output, folder, self.cwd, within=within)
        self._commands.append(run)
        return run

    def _next_output(self) -> Path:
        return self.folder / f"output-{len(self._commands) + 1}.txt"
