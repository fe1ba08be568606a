"""What the supervisor needs to know to start one role, and what a role's exit status means."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from aclearn.launch.environment import PARENT_PID_VARIABLE, RESTARTS_VARIABLE

EXIT_GIVE_UP = 64
"""A role exits with this when a restart cannot help: a bad configuration, an environment that
fails for good. The number is EX_USAGE of sysexits.h; Python itself uses 0, 1 and 2."""


@dataclass(frozen=True)
class RoleCommand:
    """How one role is started, as often as it must be.

    Attributes:
        role: the kind, e.g. actor.
        name: unique within a supervisor, e.g. "actor-3".
        argv: program and arguments; run as they are, without a shell.
        environment: variables set on top of the supervisor's own environment.
        log_path: receives stdout and stderr, appended; its folder is made if it is missing.
        optional: the others can do without it: when no restart is left it has failed, is not
            started again, and the run goes on.
    """

    role: str
    name: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    log_path: Path
    optional: bool = False

    def full_environment(self, restarts: int = 0) -> dict[str, str]:
        """The child's whole environment, with the parent's pid and what makes its log complete."""
        return {
            # A killed process loses what it buffered, and a crash in native code leaves no
            # traceback, unless these are on.
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            **os.environ,
            **self.environment,
            PARENT_PID_VARIABLE: str(os.getpid()),
            RESTARTS_VARIABLE: str(restarts),
        }
