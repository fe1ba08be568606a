"""Connections that say nothing, more of them than a process may have open files."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.system import CARTPOLE, System
from tests.support.visitor import Visitor
from tests.support.waiting import wait_for

#: Open files of every process of the run; silent connections to each of three sockets. The
#: trainer has two of them.
_FILES, _SILENT = 5_000, 2_600
#: (5000 - 256 - 2 * 1001) / 2, see `most_connections`.
_BOUND = 1_371


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Lets this process open as many files as the connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * _SILENT + 500:
        pytest.skip(f"the limit of open files is {hard}, too low for a flood")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * _SILENT + 500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _silent(address: str) -> socket.socket:
    """A connection; the queue of new ones may be full for a moment."""
    peer = socket.socket(socket.AF_UNIX)
    peer.setblocking(False)

    def connected() -> bool:
        error = peer.connect_ex(address)
        assert error in (0, errno.EAGAIN), f"{address}: {os.strerror(error)}"
        return not error

    wait_for(connected, "a connection", pause_s=0.002)
    return peer


@pytest.mark.usefixtures("_many_files")
def test_a_flood_of_silent_connections_is_bounded_and_counted_and_the_run_goes_on(
    system: System, visit: Callable[[str], Visitor]
) -> None:
    limited = ("bash", "-c", f'ulimit -n {_FILES}; exec "$@"', "-")
    run = system.train(system.config(CARTPOLE), within=limited)
    run.wait_until_learning()
    pids = run.pids()
    visitor = visit(run.monitor_address())
    served = run.wait_for(
        lambda: (found := visitor.endpoints()).keys() >= {"unrolls", "weights"} and found,
        "the trainer is there",
    )
    with ExitStack() as stack:
        for endpoint in (visitor.monitor, served["unrolls"], served["weights"]):
            for _ in range(_SILENT):
                stack.enter_context(_silent(endpoint.removeprefix("ipc://")))
        for name, sockets in (("monitor_refused_connections", 1), ("refused_connections", 2)):
            least = sockets * (_SILENT - _BOUND)
            run.wait_for(lambda name=name, least=least: run.last().get(name, 0) >= least, name)
        run.wait_until_learning(beyond=run.last()["learned_steps"] + 300)
        assert run.pids() == pids
    # there is room for newcomers again
    run.wait_for_new("actor-0", run.kill_role("actor-0"))
    run.wait_until_learning(beyond=run.last()["learned_steps"] + 300)
    left = {name: pid for name, pid in run.pids().items() if name != "actor-0"}
    assert left == {name: pid for name, pid in pids.items() if name != "actor-0"}
    run.finish()
