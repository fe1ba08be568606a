"""The order in which a run ends."""

from __future__ import annotations

from enum import Enum

from services.monitor.registry import Member
from services.roles import ROLES

#: Seconds for those that stop first, then for all others, to say goodbye.
_GOODBYE_WITHIN_S = 3.0


class Phase(Enum):
    """How far the end of the run has come."""

    RUNNING = "running"
    STOPPING_ACTORS = "stopping actors"
    STOPPING_ALL = "stopping"
    OVER = "over"


class Ending:
    """Actors stop first, so that nothing is produced that is not learned. Pure: time is given.

    Attributes:
        reason: why the run ends; None while it goes on.
    """

    def __init__(self) -> None:
        self.phase = Phase.RUNNING
        self.reason: str | None = None
        self._since = 0.0

    def begin(self, reason: str, now: float) -> bool:
        """End the run; False where it is ending already."""
        if self.phase is not Phase.RUNNING:
            return False
        self.phase, self.reason, self._since = Phase.STOPPING_ACTORS, reason, now
        return True

    def leave(self, reason: str) -> None:
        """End the monitor alone: the others go on, and the next monitor finds them."""
        self.phase, self.reason = Phase.OVER, reason

    def advance(self, members: list[Member], now: float) -> Phase:
        """The phase at `now`: the next one when all of this one have left, or are too late."""
        late = now - self._since > _GOODBYE_WITHIN_S
        if self.phase is Phase.STOPPING_ACTORS:
            if late or not any(ROLES[member.role].stops_first for member in members):
                self.phase, self._since = Phase.STOPPING_ALL, now
        elif self.phase is Phase.STOPPING_ALL and (late or not members):
            self.phase = Phase.OVER
        return self.phase
