"""The command of a role, the meaning of its exit status, its states and events."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

#: Environment variables of a child: the pid of its supervisor, and the number of its earlier
#: starts.
PARENT_PID_VARIABLE, RESTARTS_VARIABLE = "ACLEARN_PARENT_PID", "ACLEARN_RESTARTS"
#: Exit status of a role that a restart cannot help: a bad configuration, an environment that always
#: fails. The number is EX_USAGE of sysexits.h; Python itself uses 0, 1 and 2.
EXIT_GIVE_UP = 64


def child_environment() -> dict[str, str]:
    """The environment of a child that ends with this process."""
    return {
        # otherwise a killed process loses its buffer, and a native crash leaves no traceback
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        **os.environ,
        PARENT_PID_VARIABLE: str(os.getpid()),
    }


@dataclass(frozen=True)
class RoleCommand:
    """The command that starts one role.

    Attributes:
        name: unique within a supervisor, e.g. "actor-3".
        argv: program and arguments; no shell.
        environment: variables added to the supervisor's own.
        log_path: stdout and stderr are appended to it; its folder is made if missing.
        optional: whether the run continues when no restart is left.
    """

    role: str
    name: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    log_path: Path
    optional: bool = False

    def full_environment(self, restarts: int) -> dict[str, str]:
        """The child's whole environment."""
        return {**child_environment(), **self.environment, RESTARTS_VARIABLE: str(restarts)}


#: "ended": exited with status 0, before the caller has decided whether the run is over.
State = Literal["new", "running", "waiting", "ended", "done", "failed", "leaving", "stopped"]


#: "died": a restart follows or none is left; "killed": by `kill` or too slow to leave; "done":
#: ended with the run.
EventKind = Literal["started", "restarted", "died", "killed", "done", "removed"]


@dataclass(frozen=True)
class Event:
    """An event of a role; `detail` is e.g. "exit status 3; restart 1 in 0.5 s"."""

    name: str
    kind: EventKind
    detail: str


@dataclass(frozen=True)
class RoleStatus:
    """One row of the table of roles; `pid` is None while no process runs."""

    role: str
    name: str
    state: State
    restarts: int
    pid: int | None
