"""What a supervisor says of its roles: their states and the events between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: "ended": it has exited with status 0, and nobody has said yet whether the run is over.
State = Literal["new", "running", "waiting", "ended", "done", "failed", "leaving", "stopped"]


@dataclass(frozen=True)
class Event:
    """Something that happened to a role.

    Attributes:
        kind: started, restarted, died (a restart follows or the budget is spent), killed (asked for
            by `kill` or too slow to leave), done (it has ended with the run), removed.
        detail: in words, e.g. "exit status 3; restart 1 in 0.5 s".
    """

    role: str
    name: str
    kind: Literal["started", "restarted", "died", "killed", "done", "removed"]
    detail: str


@dataclass(frozen=True)
class RoleStatus:
    """One row of the table of roles; `pid` is None while no process runs."""

    role: str
    name: str
    state: State
    restarts: int
    pid: int | None
