"""The order in which a run ends."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from services.roles import ROLES

#: Seconds for the last heartbeats: of the roles that stop first, then of all others.
GOODBYE_WITHIN_S = 3.0


class Phase(Enum):
    """How far the end of the run has come."""

    RUNNING = "running"
    STOPPING_ACTORS = "stopping actors"
    STOPPING_ALL = "stopping"
    OVER = "over"


class Ending:
    """The phases of the end: actors stop first, so that all they produced can be learned. Pure."""

    def __init__(self) -> None:
        self.phase = Phase.RUNNING
        self.reason: str | None = None
        self._since = 0.0

    def begin(self, reason: str, now: float) -> bool:
        """End the run; False if it is ending already."""
        if self.phase is not Phase.RUNNING:
            return False
        self.phase, self.reason, self._since = Phase.STOPPING_ACTORS, reason, now
        return True

    def leave(self, reason: str) -> None:
        """End the monitor alone; the other roles continue, and the next monitor finds them."""
        self.phase, self.reason = Phase.OVER, reason

    def advance(self, roles: Collection[str], now: float, *, within_s: float) -> Phase:
        """The phase at `now`: the next one once all processes of this one have left or are late.

        All have `within_s` to leave, those that stop first `GOODBYE_WITHIN_S`.

        Args:
            roles: those of the processes that are there.
        """
        took_s = now - self._since
        if self.phase is Phase.STOPPING_ACTORS:
            late = took_s > GOODBYE_WITHIN_S
            if late or not any(ROLES[role].stops_first for role in roles):
                self.phase, self._since = Phase.STOPPING_ALL, now
        elif self.phase is Phase.STOPPING_ALL and (took_s > within_s or not roles):
            self.phase = Phase.OVER
        return self.phase
