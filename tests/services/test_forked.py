"""The server from which `aclearn train` forks its roles."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aclearn.launch import RoleCommand
from aclearn.launch.fork_server import ForkServer
from aclearn.launch.role_process import RoleProcess
from services.launcher.role_commands import PROGRAM
from tests.support.waiting import wait_for


@pytest.mark.skipif(sys.platform != "linux", reason="needs descriptors of processes")
def test_it_forks_with_all_its_imports(tmp_path: Path) -> None:
    log = tmp_path / "actor-0.log"
    command = RoleCommand("actor", "actor-0", (*PROGRAM, "configs"), {}, log)
    with ForkServer("services.forked", PROGRAM) as forks:
        process = forks.start(command, 0)
        # none of its imports has started a thread, with which it would not fork
        assert not isinstance(process, RoleProcess)
        wait_for(process.exited, "it has ended")
        assert process.reap() == 0
    assert "cartpole_ppo" in log.read_text()
