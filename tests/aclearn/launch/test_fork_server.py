"""Forks of a server; `test_supervisor.py` and `test_parent_death.py` run with them too."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from aclearn.launch.fork_server import ForkServer
from aclearn.launch.role_process import RoleProcess
from tests.support.waiting import DEADLINE_S

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
_DIES_WITH_SUPERVISOR = (
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
    assert f"server {stage.server}\nlong 1000000 {stage.folder}\n" in stage.log("actor-0")
    assert fork.pid is not None
    shown = psutil.Process(fork.pid).cmdline()
    assert [word for word in shown if word] == list(role.argv)
    assert psutil.Process(stage.server).cmdline()[:4] == [sys.executable, "-P", "-m", _MODULE]
    fork.terminate()
    assert fork.reap() in (-signal.SIGTERM, -signal.SIGKILL)


@pytest.mark.parametrize("stage", ["forks"], indirect=True)
def test_forks_outlive_a_server_that_is_killed_and_the_next_roles_are_processes(
    stage: Stage,
) -> None:
    supervisor = stage.supervise(
        *(stage.role(f"actor-{i}", _DIES_WITH_SUPERVISOR) for i in range(2))
    )
    supervisor.start()
    pids = [stage.pid_in_log(f"actor-{i}", "pid") for i in range(2)]
    server = stage.server
    os.kill(server, signal.SIGKILL)
    stage.wait_until(lambda: stage.gone(server), "the server is gone")
    supervisor.kill("actor-0", "silent")
    again = lambda: stage.log("actor-0").count("parent=") == 2  # noqa: E731
    events = stage.collect(supervisor, again, "it is started again")
    assert events == ["actor-0 started", "actor-1 started", "actor-0 killed", "actor-0 restarted"]
    assert f"parent={os.getpid()}\n" in stage.log("actor-0")
    assert stage.gone(pids[0]) and not stage.gone(pids[1])
    assert supervisor.stop(DEADLINE_S) == []
    assert stage.gone(pids[1])


@pytest.mark.parametrize("stage", ["forks"], indirect=True)
def test_a_server_outlives_a_sigterm_to_all_and_its_forks_do_not(stage: Stage) -> None:
    supervisor = stage.supervise(stage.role("actor-0", _DIES_WITH_SUPERVISOR))
    supervisor.start()
    pid = stage.pid_in_log("actor-0", "pid")
    supervisor.expect_end()
    for each in (stage.server, pid):
        os.kill(each, signal.SIGTERM)
    details: list[str] = []

    def ends() -> bool:
        details.extend(event.detail for event in supervisor.poll())
        return supervisor.finished

    stage.wait_until(ends, "it has ended")
    assert details[-1] == "killed by SIGTERM"  # the server knows it


@pytest.mark.parametrize("module", ["tests.support.no_such_module", "tests.support.forked"])
def test_a_server_that_cannot_be_imported_or_started_leaves_roles_as_processes(
    stage: Stage, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no process is left")

    with monkeypatch.context() as patch:
        if module == _MODULE:
            patch.setattr("subprocess.Popen", fails)
        made = ForkServer(module, (sys.executable,))
    with made as forks:
        process = forks.start(stage.role("actor-0", "print('runs')"), 0)
        assert isinstance(process, RoleProcess)
        stage.wait_for_log("actor-0", "runs")
        stage.wait_until(process.exited, "it has ended")
        assert process.reap() == 0
