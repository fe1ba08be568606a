from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest

from aclearn.errors import RoleFailure
from aclearn.launch import EXIT_GIVE_UP, RoleCommand, Supervisor
from tests.support.clock import Clock
from tests.support.waiting import DEADLINE_S, patience

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = pytest.mark.parametrize("stage", ["children", "forks"], indirect=True)

_WAITS = "import signal; print('ready', flush=True); signal.pause()"
_DEAF = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)\n"
)
_ORDERLY = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)\n"
)
_WITH_CHILD = (
    "import subprocess, sys, time\n"
    "deaf = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);'\n"
    "deaf += 'print(\"deaf\", flush=True); time.sleep(600)'\n"
    "child = subprocess.Popen([sys.executable, '-c', deaf])\n"
    "print(f'child={child.pid}', flush=True)\n"
)


def _state(supervisor: Supervisor, name: str) -> str:
    return next(status.state for status in supervisor.roles() if status.name == name)


def _pid(supervisor: Supervisor, name: str) -> int:
    pid = next(status.pid for status in supervisor.roles() if status.name == name)
    assert pid is not None
    return pid


def _ended(supervisor: Supervisor) -> bool:
    return all(status.state == "ended" for status in supervisor.roles())


def test_roles_that_exit_with_zero_are_done_once_the_run_is_over(stage: Stage) -> None:
    supervisor = stage.supervise(stage.role("actor-0", "pass"), stage.role("trainer-0", _ORDERLY))
    supervisor.start()
    stage.collect(supervisor, lambda: _state(supervisor, "actor-0") == "ended", "one has ended")
    stage.wait_for_log("trainer-0", "ready")
    supervisor.expect_end()
    assert not supervisor.finished
    psutil.Process(_pid(supervisor, "trainer-0")).terminate()
    events = stage.collect(supervisor, lambda: supervisor.finished, "both are done")
    assert events == ["actor-0 done", "trainer-0 done"]
    assert [(s.state, s.restarts, s.pid) for s in supervisor.roles()] == [("done", 0, None)] * 2
    with pytest.raises(RuntimeError, match="a supervisor that is ending"):
        supervisor.add(stage.role("actor-1", "pass"))


def test_an_exit_with_zero_while_the_run_goes_on_is_a_death_like_any_other(stage: Stage) -> None:
    supervisor = stage.supervise(stage.role("actor-0", "print('bye')"), max_restarts=1)
    supervisor.start()
    stage.collect(supervisor, lambda: _ended(supervisor), "it has ended")
    assert not supervisor.finished
    supervisor.count_as_death("actor-0")
    [died] = supervisor.poll()
    assert (died.kind, died.detail) == ("died", "exit status 0; restart 1 in 0.01 s")
    events = stage.collect(supervisor, lambda: _ended(supervisor), "it has ended again")
    assert events == ["actor-0 restarted"]
    supervisor.count_as_death("actor-0")
    with pytest.raises(RoleFailure, match=r"(?s)exit status 0; no restart is left after 1.*bye"):
        supervisor.poll()


def test_no_role_is_started_again_after_the_run_is_over(stage: Stage) -> None:
    supervisor = stage.supervise(
        stage.role("actor-0", "import sys; sys.exit(3)"),
        stage.role("trainer-0", _WAITS),
        stage.role("actor-1", "import sys; sys.exit(143)"),
        backoff_first_s=600.0,
        backoff_max_s=600.0,
    )
    supervisor.start()
    stage.wait_for_log("trainer-0", "ready")
    for name in ("actor-0", "actor-1"):
        stage.collect(supervisor, lambda n=name: _state(supervisor, n) == "waiting", "it is dead")
    supervisor.expect_end()
    psutil.Process(_pid(supervisor, "trainer-0")).kill()
    events = stage.collect(supervisor, lambda: supervisor.finished, "no role is waited for")
    assert events == ["trainer-0 died"]
    assert [s.state for s in supervisor.roles()] == ["stopped", "failed", "stopped"]


def test_a_role_that_dies_is_restarted_after_its_delay_and_the_others_live_on(
    stage: Stage,
) -> None:
    clock = Clock()
    actor, trainer = stage.role("actor-0", _WAITS), stage.role("trainer-0", _WAITS)
    supervisor = stage.supervise(
        actor, trainer, backoff_first_s=4.0, backoff_max_s=4.0, clock=clock
    )
    supervisor.start()
    first, other = _pid(supervisor, "actor-0"), _pid(supervisor, "trainer-0")
    supervisor.poll()

    psutil.Process(first).kill()
    stage.collect(supervisor, lambda: _state(supervisor, "actor-0") == "waiting", "it is reaped")
    clock.now += 3.9
    assert supervisor.poll() == []
    clock.now += 0.1
    events = [(event.name, event.kind) for event in supervisor.poll()]

    assert events == [("actor-0", "restarted")]
    assert _pid(supervisor, "actor-0") != first
    assert _pid(supervisor, "trainer-0") == other
    assert [status.restarts for status in supervisor.roles()] == [1, 0]


def test_the_failure_tells_name_exit_and_the_last_traceback(stage: Stage) -> None:
    source = "def play():\n    raise RuntimeError('the ball is gone')\nplay()\n"
    supervisor = stage.supervise(stage.role("actor-7", source), max_restarts=2)
    supervisor.start()
    with pytest.raises(RoleFailure) as failure:
        stage.collect(supervisor, lambda: False, "the budget is spent")
    seen = [event.kind for event in supervisor.poll()]

    text = str(failure.value)
    assert "actor-7: exit status 1; no restart is left after 2" in text
    assert "Traceback (most recent call last):" in text
    assert text.rstrip().endswith("RuntimeError: the ball is gone")
    assert text.count("the ball is gone") == 1  # the earlier incarnations' ends are not repeated
    assert stage.log("actor-7").count("the ball is gone") == 3  # the first start and two restarts
    assert seen[-1] == "died"
    assert not supervisor.finished
    assert _state(supervisor, "actor-7") == "failed"


def test_a_role_that_gives_up_is_not_restarted_and_a_kill_from_outside_is_called_by_its_signal(
    stage: Stage,
) -> None:
    source = f"import sys; print('no such game: Pongg'); sys.exit({EXIT_GIVE_UP})"
    supervisor = stage.supervise(stage.role("actor-0", source), max_restarts=5)
    supervisor.start()
    with pytest.raises(RoleFailure, match=r"(?s)actor-0: gave up.*no such game: Pongg"):
        stage.collect(supervisor, lambda: False, "it gives up")
    assert stage.log("actor-0").count("no such game") == 1
    assert [status.restarts for status in supervisor.roles()] == [0]

    supervisor = stage.supervise(stage.role("actor-1", _WAITS), max_restarts=0)
    supervisor.start()
    psutil.Process(_pid(supervisor, "actor-1")).kill()
    with pytest.raises(RoleFailure, match="killed by SIGKILL, not by the supervisor"):
        stage.collect(supervisor, lambda: False, "it is noticed")


def test_each_role_has_a_budget_of_its_own_and_is_told_of_its_earlier_starts(stage: Stage) -> None:
    source = (
        "import os, sys\n"
        "before = int(os.environ['ACLEARN_RESTARTS'])\n"
        "print(before, flush=True)\n"
        "sys.exit(before < 1)\n"
    )
    roles = [stage.role(f"actor-{index}", source) for index in range(3)]
    supervisor = stage.supervise(*roles, max_restarts=1)
    supervisor.start()
    stage.collect(supervisor, lambda: _ended(supervisor), "each failed once and then ended well")
    assert [status.restarts for status in supervisor.roles()] == [1, 1, 1]
    assert stage.log("actor-1").split() == ["0", "1"]
    # also one that is added again
    supervisor.remove("actor-1")
    supervisor.add(stage.role("actor-1", source))
    stage.wait_for_log("actor-1", "0\n1\n2")


def test_a_silent_role_is_killed_restarted_and_counted_against_its_budget(stage: Stage) -> None:
    supervisor = stage.supervise(stage.role("actor-0", _DEAF), max_restarts=1)
    supervisor.start()
    stage.wait_for_log("actor-0", "ready")
    first = _pid(supervisor, "actor-0")

    assert supervisor.kill("actor-0", "silent for 20 s")
    events = stage.collect(
        supervisor, lambda: supervisor.roles()[0].restarts == 1, "it is started again"
    )
    assert events == ["actor-0 started", "actor-0 killed", "actor-0 restarted"]
    assert _pid(supervisor, "actor-0") != first

    assert supervisor.kill("actor-0", "silent for 20 s")
    with pytest.raises(RoleFailure, match="killed: silent for 20 s; no restart is left after 1"):
        stage.collect(supervisor, lambda: False, "the budget is spent")
    assert not supervisor.kill("actor-0", "nothing left to kill")


def test_stop_lets_roles_end_in_order_and_kills_and_names_those_that_do_not(stage: Stage) -> None:
    supervisor = stage.supervise(
        stage.role("actor-0", _ORDERLY),
        stage.role("actor-1", _WITH_CHILD + "time.sleep(600)"),
        stage.role("trainer-0", _DEAF),
    )
    supervisor.start()
    for name, line in (("actor-0", "ready"), ("actor-1", "deaf"), ("trainer-0", "ready")):
        stage.wait_for_log(name, line)
    grandchild, pid = stage.pid_in_log("actor-1", "child"), _pid(supervisor, "trainer-0")
    begin = time.monotonic()
    within_s = patience()  # in which the others end in order
    assert supervisor.stop(within_s) == ["trainer-0"]
    assert within_s <= time.monotonic() - begin < DEADLINE_S
    assert "saved" in stage.log("actor-0")
    assert stage.gone(pid)
    assert psutil.Process(stage.server).children(recursive=True) == []
    stage.wait_until(lambda: stage.gone(grandchild), "the child of a role is gone")
    assert {event.kind for event in supervisor.poll()} == {"started"}  # and nothing restarted
    assert [status.state for status in supervisor.roles()] == ["stopped"] * 3
    assert supervisor.stop(DEADLINE_S) == []


def test_a_second_ctrl_c_ends_the_wait_of_stop(stage: Stage) -> None:
    supervisor = stage.supervise(stage.role("trainer-0", _DEAF))
    supervisor.start()
    stage.wait_for_log("trainer-0", "ready")
    begin = time.monotonic()
    assert supervisor.stop(600.0, forced=lambda: True) == ["trainer-0"]
    assert time.monotonic() - begin < DEADLINE_S


@pytest.mark.parametrize(("status", "expected"), [(0, "ended"), (1, "waiting")])
def test_what_a_role_leaves_running_is_killed_when_it_ends(
    stage: Stage, status: int, expected: str
) -> None:
    go = stage.folder / "go"
    wait = f"import pathlib\nwhile not pathlib.Path('{go}').exists(): time.sleep(0.005)\n"
    role = stage.role("actor-0", f"{_WITH_CHILD}{wait}sys.exit({status})")
    supervisor = stage.supervise(role, backoff_first_s=600.0, backoff_max_s=600.0)
    supervisor.start()
    grandchild = stage.pid_in_log("actor-0", "child")
    stage.wait_for_log("actor-0", "deaf")
    go.touch()
    stage.collect(supervisor, lambda: _state(supervisor, "actor-0") == expected, expected)
    stage.wait_until(lambda: stage.gone(grandchild), "the grandchild is gone")


def test_a_role_is_added_and_removed_while_the_others_run(stage: Stage) -> None:
    supervisor = stage.supervise(stage.role("actor-0", _ORDERLY))
    supervisor.start()
    supervisor.add(stage.role("actor-1", _ORDERLY))
    stage.wait_for_log("actor-1", "ready")
    with pytest.raises(ValueError, match="'actor-1' is taken"):
        supervisor.add(stage.role("actor-1", _ORDERLY))
    for call in (lambda: supervisor.kill("actor-9", "x"), lambda: supervisor.remove("actor-9")):
        with pytest.raises(ValueError, match="no role is named 'actor-9'; there are: actor-0"):
            call()

    supervisor.remove("actor-1")
    events = stage.collect(supervisor, lambda: len(supervisor.roles()) == 1, "it has left")
    assert events == ["actor-0 started", "actor-1 started", "actor-1 removed"]
    assert "saved" in stage.log("actor-1")
    assert [(s.name, s.state) for s in supervisor.roles()] == [("actor-0", "running")]

    supervisor.add(stage.role("actor-1", _ORDERLY))  # the name is free again
    assert [s.name for s in supervisor.roles()] == ["actor-0", "actor-1"]


def test_an_optional_role_that_dies_too_often_ends_no_other(stage: Stage) -> None:
    supervisor = stage.supervise(stage.role("actor-0", _ORDERLY), max_restarts=1)
    supervisor.start()
    optional = replace(stage.role("actor-1", "import sys; sys.exit(3)"), optional=True)
    for _ in range(2):
        supervisor.add(optional)
        events = stage.collect(
            supervisor, lambda: _state(supervisor, "actor-1") == "failed", "no restart is left"
        )
        kinds = [event.split()[1] for event in events if event.startswith("actor-1")]
        assert kinds == ["started", "died", "restarted", "died"]
        assert _state(supervisor, "actor-0") == "running"
        supervisor.remove("actor-1")  # its name is free again
        supervisor.poll()
    supervisor.add(optional)
    stage.wait_for_log("actor-0", "ready")
    psutil.Process(_pid(supervisor, "actor-0")).terminate()
    states = ["ended", "failed"]
    stage.collect(supervisor, lambda: [s.state for s in supervisor.roles()] == states, "both end")
    assert not supervisor.finished
    supervisor.expect_end()
    assert supervisor.finished


def test_a_role_that_does_not_leave_in_time_is_killed_by_poll(stage: Stage) -> None:
    clock = Clock()
    supervisor = stage.supervise(stage.role("actor-0", _DEAF), clock=clock)
    supervisor.start()
    stage.wait_for_log("actor-0", "ready")
    pid = _pid(supervisor, "actor-0")
    supervisor.remove("actor-0")
    clock.now += 9.9
    supervisor.poll()
    assert not stage.gone(pid)
    clock.now += 0.1
    events = stage.collect(supervisor, lambda: supervisor.roles() == [], "it is gone")
    assert events[-1] == "actor-0 removed"
    assert stage.gone(pid)


def test_a_program_or_log_that_cannot_be_opened_fails_at_once_by_name(stage: Stage) -> None:
    missing = RoleCommand("actor", "actor-0", ("/nowhere/python",), {}, stage.folder / "a.log")
    linked = stage.role("actor-0", _WAITS)
    (stage.folder / "elsewhere").write_text("mine\n")
    linked.log_path.parent.mkdir()
    linked.log_path.symlink_to(stage.folder / "elsewhere")
    for role, why in ((missing, "/nowhere/python"), (linked, "is a symbolic link")):
        with pytest.raises(RoleFailure, match=f"actor-0: cannot be started: .*{why}"):
            stage.supervise(role).start()
    assert (stage.folder / "elsewhere").read_text() == "mine\n"


def test_a_child_gets_its_environment_no_input_and_a_session_of_its_own(stage: Stage) -> None:
    source = (
        "import os, sys\n"
        "print('parent', os.environ['ACLEARN_PARENT_PID'], os.getppid())\n"
        "print('threads', os.environ['OMP_NUM_THREADS'])\n"
        "print('input', repr(sys.stdin.read()))\n"
        "print('leads', os.getsid(0) == os.getpgrp() == os.getpid())\n"
        "print('to stderr', file=sys.stderr)\n"
    )
    supervisor = stage.supervise(stage.role("actor-0", source, OMP_NUM_THREADS="7"))
    supervisor.start()
    stage.collect(supervisor, lambda: _ended(supervisor), "it has ended")
    assert stage.log("actor-0").splitlines() == [
        f"parent {psutil.Process().pid} {stage.server}",
        "threads 7",
        "input ''",
        "leads True",
        "to stderr",
    ]


def test_poll_and_stop_leave_alone_what_the_supervisor_did_not_start(stage: Stage) -> None:
    other = stage.supervise(stage.role("other-0", _WAITS))
    other.start()
    supervisor = stage.supervise(stage.role("actor-0", _WAITS))
    supervisor.start()
    supervisor.stop(DEADLINE_S)
    process = psutil.Process(_pid(other, "other-0"))
    assert process.status() != psutil.STATUS_ZOMBIE
    process.send_signal(signal.SIGKILL)
