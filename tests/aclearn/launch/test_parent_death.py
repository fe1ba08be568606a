from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aclearn.launch import PARENT_PID_VARIABLE, parent_is_alive
from tests.support.waiting import DEADLINE_S

if TYPE_CHECKING:
    from .conftest import Stage

# A parent in its own process, so that it can be killed: it supervises one role with the source in
# argv[1] and the log in argv[2], as a child or, with FORKS, as a fork.
_PARENT = """
import os, sys, time
from pathlib import Path
from aclearn.launch import RoleCommand, Supervisor
from aclearn.launch.fork_server import ForkServer
from aclearn.launch.role_process import RoleProcess
start = RoleProcess
if "FORKS" in os.environ:
    forks = ForkServer("tests.support.forked", (sys.executable,))
    start = forks.start
role = RoleCommand("actor", "actor-0", (sys.executable, "-c", sys.argv[1]), {}, Path(sys.argv[2]))
supervisor = Supervisor(
    [role], max_restarts=0, restart_window_s=9.0, backoff_first_s=0.1, backoff_max_s=0.1,
    start_process=start
)
supervisor.start()
while True:
    supervisor.poll()
    time.sleep(0.01)
"""

_OBEYS = """
import os, signal, time
from aclearn.launch import die_with_parent, install_stop_signals, parent_death
flag = install_stop_signals()
parent_death._POLL_S = {poll_s}
die_with_parent()
print(f"pid={{os.getpid()}}", flush=True)
while not flag:
    time.sleep(0.005)
print("reason", flag.reason, flush=True)
"""

_DEAF_WITH_CHILD = """
import os, signal, subprocess, sys, time
from aclearn.launch import die_with_parent, parent_death
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
parent_death._GRACE_S, parent_death._POLL_S = 0.2, 0.02
die_with_parent()
print(f"child={child.pid}", flush=True)
print(f"pid={os.getpid()}", flush=True)
time.sleep(600)
"""

_LOOKS = """
import os, time
from aclearn.launch import parent_is_alive
print(f"pid={os.getpid()}", flush=True)
while parent_is_alive():
    time.sleep(0.005)
print("orphan", flush=True)
"""


def _kill_parent_of(stage: Stage, source: str) -> int:
    """Start a parent with this role, then kill -9 the parent; returns the role's pid."""
    log = stage.folder / "logs" / "actor-0.log"
    forks = {"FORKS": "1"} if stage.forks else {}
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, source, str(log)],
        env=os.environ | stage.environment | forks,
    )
    try:
        pid = stage.pid_in_log("actor-0", "pid")
    finally:
        parent.kill()
        parent.wait(DEADLINE_S)
    return pid


@pytest.mark.parametrize("stage", ["children", "forks"], indirect=True)
@pytest.mark.parametrize(
    ("before", "poll_s"),
    [
        pytest.param(
            *("", 600.0),  # the thread is too slow to act
            id="by the kernel",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's"),
        ),
        pytest.param("import sys\nsys.platform = 'other'\n", 0.02, id="by the watching thread"),
    ],
)
def test_a_role_ends_in_order_when_its_parent_is_killed(
    stage: Stage, before: str, poll_s: float
) -> None:
    pid = _kill_parent_of(stage, before + _OBEYS.format(poll_s=poll_s))
    stage.wait_until(lambda: stage.gone(pid), "the role is gone")
    assert stage.log("actor-0").endswith("reason SIGTERM\n")


@pytest.mark.parametrize("stage", ["children", "forks"], indirect=True)
def test_a_role_that_ignores_the_end_of_its_parent_is_killed_with_its_children(
    stage: Stage,
) -> None:
    pid = _kill_parent_of(stage, _DEAF_WITH_CHILD)
    child = stage.pid_in_log("actor-0", "child")
    stage.wait_until(lambda: stage.gone(pid), "the role is gone")
    stage.wait_until(lambda: stage.gone(child), "the role's child is gone")


#: The system call that ends one thread, by machine.
_EXIT = {"x86_64": 60, "aarch64": 93}


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _EXIT, reason="needs the system call"
)
def test_a_parent_whose_last_threads_are_still_ending_is_dead(stage: Stage) -> None:
    ends = _PARENT.replace(
        "while True:",
        f"""
import ctypes, threading
threading.Thread(target=time.sleep, args=(600.0,)).start()
time.sleep(0.5)
ctypes.CDLL(None).syscall({_EXIT.get(platform.machine())}, 0)
while True:""",
    )
    looks = _LOOKS + "print('parent', os.getppid(), os.environ['ACLEARN_PARENT_PID'], flush=True)\n"
    log = stage.folder / "logs" / "actor-0.log"
    parent = subprocess.Popen(
        [sys.executable, "-c", ends, looks, str(log)], env=os.environ | stage.environment
    )
    try:
        pid = stage.pid_in_log("actor-0", "pid")
        stage.wait_until(lambda: stage.gone(pid), "the role has seen the end of its parent")
        assert stage.log("actor-0").endswith(f"orphan\nparent {parent.pid} {parent.pid}\n")
    finally:
        parent.kill()
        parent.wait(DEADLINE_S)


def test_only_a_role_with_a_supervisor_can_lose_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PARENT_PID_VARIABLE, raising=False)
    assert parent_is_alive()
    monkeypatch.setenv(PARENT_PID_VARIABLE, str(os.getpid()))  # no process is its own parent
    assert not parent_is_alive()
    monkeypatch.setenv(PARENT_PID_VARIABLE, str(os.getppid()))
    assert parent_is_alive()


def test_a_ctrl_c_at_the_terminal_reaches_the_parent_alone_and_it_ends_the_roles_in_order(
    stage: Stage,
) -> None:
    stops = _PARENT.replace("while True:", "while not flag:") + (
        "print(flag.reason, supervisor.stop(300.0), flush=True)\n"
    )
    stops = (
        "from aclearn.launch import install_stop_signals\nflag = install_stop_signals()\n" + stops
    )
    log = stage.folder / "logs" / "actor-0.log"
    parent = subprocess.Popen(
        [sys.executable, "-c", stops, _OBEYS.format(poll_s=600.0), str(log)],
        env=os.environ | stage.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with parent:
        try:
            pid = stage.pid_in_log("actor-0", "pid")
            os.killpg(parent.pid, signal.SIGINT)  # as the terminal does
            out, _ = parent.communicate(timeout=DEADLINE_S)
        finally:
            parent.kill()
    assert out == "SIGINT []\n"
    assert parent.returncode == 0
    assert stage.log("actor-0").endswith("reason SIGTERM\n")
    assert stage.gone(pid)
