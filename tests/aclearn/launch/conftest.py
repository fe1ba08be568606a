from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

import aclearn
from aclearn.launch import RoleCommand, Supervisor
from aclearn.launch.fork_server import ForkServer
from aclearn.launch.role_process import RoleProcess
from tests.support.waiting import wait_for

_MARK = "ACLEARN_TEST_MARK"
_ROOT = Path(aclearn.__file__).parents[1]


def gone(pid: int) -> bool:
    """Whether the process has ended; a zombie counts too: its new parent has not reaped it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _marked(mark: str) -> list[psutil.Process]:
    """Living processes with this test's mark in their environment, of any parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and not gone(process.pid):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


class Stage:
    """Makes roles of Python source, supervises them, and checks that none survives.

    Args:
        forks: starts them; None: each is a child of this process.
    """

    def __init__(self, folder: Path, mark: str, forks: ForkServer | None) -> None:
        self.folder, self.mark, self.forks = folder, mark, forks
        self.environment = {_MARK: self.mark, "PYTHONPATH": str(_ROOT)}
        self.supervisors: list[Supervisor] = []
        self.wait_until = wait_for
        self.gone = gone

    def role(self, name: str, source: str, **variables: str) -> RoleCommand:
        return RoleCommand(
            role=name.partition("-")[0],
            name=name,
            argv=(sys.executable, "-c", source),
            environment=self.environment | variables,
            log_path=self.folder / "logs" / f"{name}.log",
        )

    def supervise(self, *commands: RoleCommand, **options: object) -> Supervisor:
        defaults: dict[str, object] = {
            "max_restarts": 3,
            "restart_window_s": 60.0,
            "backoff_first_s": 0.01,
            "backoff_max_s": 0.02,
            "start_process": self.forks.start if self.forks else RoleProcess,
        }
        supervisor = Supervisor(commands, **(defaults | options))  # type: ignore[arg-type]
        self.supervisors.append(supervisor)
        return supervisor

    @property
    def server(self) -> int:
        """The process that starts the roles: this one, or the server."""
        if self.forks is None:
            return os.getpid()
        return next(p.pid for p in psutil.Process().children() if "forked" in str(p.cmdline()))

    def log(self, name: str) -> str:
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def wait_for_log(self, name: str, text: str) -> None:
        wait_for(lambda: text in self.log(name), f"{text!r} stands in the log of {name}")

    def pid_in_log(self, name: str, label: str) -> int:
        """The pid in a role's line "label=pid"; waits for it."""
        self.wait_for_log(name, f"{label}=")
        wait_for(lambda: self.log(name).split(f"{label}=")[-1].endswith("\n"), "a whole line")
        return int(self.log(name).split(f"{label}=")[-1].split()[0])

    def collect(self, supervisor: Supervisor, until: Callable[[], bool], what: str) -> list[str]:
        """Poll until the condition holds; the events as "name kind"."""
        seen: list[str] = []

        def look() -> bool:
            seen.extend(f"{event.name} {event.kind}" for event in supervisor.poll())
            return until()

        wait_for(look, what)
        return seen


@pytest.fixture
def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Stage]:
    mark = uuid.uuid4().hex
    monkeypatch.setenv(_MARK, mark)
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    forked = getattr(request, "param", "children") == "forks"
    with ForkServer("tests.support.forked", (sys.executable,)) if forked else nullcontext() as made:
        stage = Stage(tmp_path, mark, made)
        yield stage
        for supervisor in stage.supervisors:
            supervisor.stop(0.0)
    try:
        wait_for(lambda: not _marked(stage.mark), "no process of this test is left")
    finally:
        for process in _marked(stage.mark):
            os.kill(process.pid, 9)
