"""The states of a supervisor's roles, and events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
