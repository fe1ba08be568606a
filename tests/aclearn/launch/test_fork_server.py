"""Forks of a server; `test_supervisor.py` and `test_parent_death.py` run with them too."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from aclearn.launch.fork_server import ForkServer
from aclearn.launch.role_process import RoleProcess

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs process descriptors")

_MODULE = "tests.support.forked"
_SAYS = (
    "import os, signal, sys\n"
    "print('server', os.getppid(), flush=True)\n"
    "print('long', len(os.environ['LONG']), os.getcwd(), *sys.argv[1:], flush=True)\n"
    "signal.pause()\n"
)
_DIES_WITH_PARENT = (
    "import os, signal\n"
    "from aclearn.launch import die_with_parent\n"
    "die_with_parent()\n"
    "print(f'parent={os.getppid()}\\npid={os.getpid()}', flush=True)\n"
    "signal.pause()\n"
)


@pytest.mark.parametrize("stage", ["forks"], indirect=True)
def test_a_fork_has_the_command_line_folder_and_environment_of_a_process_of_its_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage.forks is not None
    # longer than a packet
    role = stage.role("actor-0", _SAYS, LONG="x" * 1_000_000)
    monkeypatch.chdir(stage.folder)
    fork = stage.forks.start(role, 0)
    stage.wait_for_log("actor-0", f"{stage.folder}\n")
    assert f"server {stage.parent}\nlong 1000000 {stage.folder}\n" in stage.log("actor-0")
    assert fork.pid is not None
    shown = psutil.Process(fork.pid).cmdline()
    assert [word for word in shown if word] == list(role.argv)
    assert psutil.Process(stage.parent).cmdline()[:4] == [sys.executable, "-P", "-m", _MODULE]
    fork.terminate()
    assert fork.reap() in (-signal.SIGTERM, -signal.SIGKILL)


@pytest.mark.parametrize("stage", ["forks"], indirect=True)
def test_a_server_that_is_killed_ends_its_forks_and_roles_start_as_processes(stage: Stage) -> None:
    supervisor = stage.supervise(stage.role("actor-0", _DIES_WITH_PARENT))
    supervisor.start()
    first = stage.pid_in_log("actor-0", "pid")
    server = stage.parent
    os.kill(server, signal.SIGKILL)
    again = lambda: stage.log("actor-0").count("parent=") == 2  # noqa: E731
    assert "actor-0 restarted" in stage.collect(supervisor, again, "it is started again")
    assert stage.gone(first)
    parents = [
        int(line.split("=")[1]) for line in stage.log("actor-0").split() if "parent=" in line
    ]
    assert parents == [server, os.getpid()]


def test_a_server_that_cannot_be_imported_leaves_roles_as_processes(stage: Stage) -> None:
    with ForkServer("tests.support.no_such_module", (sys.executable,)) as forks:
        process = forks.start(stage.role("actor-0", "print('runs')"), 0)
        assert isinstance(process, RoleProcess)
        stage.wait_for_log("actor-0", "runs")
        stage.wait_until(process.exited, "it has ended")
        assert process.reap() == 0
