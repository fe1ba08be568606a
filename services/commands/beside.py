"""A dashboard beside a training: a process of its own, which ends with the command."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aclearn.errors import ConfigError
from aclearn.launch import RoleCommand, StopFlag
from aclearn.launch.log_tail import log_tail
from aclearn.launch.role_process import Process, RoleProcess, end_processes

#: Its output, in the folder of the run folders.
LOG_FILE: Final = "dashboard.log"
#: Seconds until it has printed its address, and for its end.
_ADDRESS_WITHIN_S, _END_WITHIN_S = 60.0, 4.0
_LOOK_EVERY_S = 0.05


@contextmanager
def dashboard_beside(runs_dir: Path, stop: StopFlag) -> Iterator[None]:
    """A dashboard of `runs_dir` at a free port of loopback, until the block ends.

    Prints its address. Its end, or its death, changes nothing for the block.

    Raises:
        ConfigError: it cannot be started, with its own words.
    """
    folder = runs_dir.absolute()
    arguments = ("dashboard", str(folder), "--port", "0")
    argv = (sys.executable, "-P", "-m", "services.cli", *arguments)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        process = RoleProcess(
            RoleCommand("dashboard", "dashboard", argv, {}, folder / LOG_FILE), restarts=0
        )
    except OSError as error:
        raise ConfigError(
            f"--dashboard: it cannot be started in {folder} ({error.strerror}); leave it out, or "
            "choose another run.dir"
        ) from error
    try:
        print(_address_line(process, folder / LOG_FILE, stop), flush=True)
        yield
    finally:
        end_processes({"dashboard": process}, _END_WITHIN_S, lambda: False)


def _address_line(process: Process, log: Path, stop: StopFlag) -> str:
    deadline = time.monotonic() + _ADDRESS_WITHIN_S
    while not stop:
        over = process.exited() or time.monotonic() > deadline
        said = log_tail(log, start=process.log_start)
        if found := re.search(r"^.*http://\S+$", said, re.MULTILINE):
            return found[0]
        if over:
            words = said.removeprefix("aclearn: ") or "it has printed no address"
            raise ConfigError(f"--dashboard: {words}")
        time.sleep(_LOOK_EVERY_S)
    return f"{stop.reason}: the dashboard is not awaited"
