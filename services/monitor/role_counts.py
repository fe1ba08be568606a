"""What the tuner has to know of the roles: what they run, whom it told, and who died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aclearn.wire import Heartbeat, SetWorkers
from services.monitor.outgoing_message import OutgoingMessage
from services.monitor.registry import Member
from services.roles import ACTOR, ROLES

#: Which role runs the workers of a count.
_ROLE_OF = {spec.tuned_workers: spec.name for spec in ROLES.values() if spec.tuned_workers}
#: Seconds between two reminders to a role that has not taken its count over.
_REMIND_EVERY_S = 1.0
#: Seconds after a wish for fewer actors in which more than are wanted still leave; as many as the
#: supervisor gives them.
_LEAVE_WITHIN_S = 10.0
#: As many times the time between two heartbeats a heartbeat may take to come.
_HEARTBEATS_LATE = 1.5


class RoleCounts:
    """Keeps who runs how many workers and who died without a last word. Pure: time is given.

    Args:
        heartbeat_every_s: seconds between two heartbeats of a role.
    """

    def __init__(self, *, heartbeat_every_s: float) -> None:
        self._heartbeat_every_s = heartbeat_every_s
        #: Roles that ended without a last word and were started again, so far.
        self.deaths = 0
        #: Of who has not said a last word, by name; as many as there are names of roles.
        self._incarnations: dict[str, str] = {}
        # by incarnation: when it last heartbeat, or was first seen; the workers that it says it
        # runs; how many it was told to run, and when
        self._heard_at: dict[str, float] = {}
        self._workers: dict[str, int] = {}
        self._told: dict[str, tuple[int, float]] = {}
        self._fewer_at = float("-inf")

    def take(self, member: Member, heartbeat: Heartbeat, now: float) -> None:
        """Take a heartbeat."""
        self.meet([member], now)
        self._heard_at[member.incarnation] = now
        if heartbeat.final:
            del self._incarnations[member.name]
            for known in (self._workers, self._told, self._heard_at):
                known.pop(member.incarnation, None)
            return
        workers = heartbeat.gauges.get("workers")
        if workers is not None:
            self._workers[member.incarnation] = int(workers)

    def meet(self, members: Sequence[Member], now: float) -> None:
        """Look who is there: one that died before its first heartbeat has died as well."""
        for member in members:
            if self._incarnations.get(member.name, member.incarnation) != member.incarnation:
                self.deaths += 1  # its predecessor left without a last word
            self._incarnations[member.name] = member.incarnation
            self._heard_at.setdefault(member.incarnation, now)

    def silence_s(self, members: Sequence[Member], now: float) -> float:
        """Seconds that the latest heartbeat is overdue: a death is noticed no sooner."""
        roles = {ACTOR.name, *_ROLE_OF.values()}  # a compressor may be silent over a long chain
        heard = [self._heard_at.get(m.incarnation, now) for m in members if m.role in roles]
        return max(0.0, now - min(heard, default=now) - _HEARTBEATS_LATE * self._heartbeat_every_s)

    def fewer_actors(self, now: float) -> None:
        """From now on fewer actors may be wanted than are there: some will leave."""
        self._fewer_at = now

    def running(
        self, members: Sequence[Member], wanted: Mapping[str, int], now: float
    ) -> dict[str, int]:
        """What the roles run, by count; a count of which some role has not told is left out."""
        there, actors = count_actors(members), wanted.get("actors", 0)
        if not 0.0 <= now - self._fewer_at < _LEAVE_WITHIN_S:
            # who is there still was started by hand: the launcher, which adds and removes its own
            # only, would follow a count that has them in it for ever
            there = min(there, actors)
        running = {"actors": there}
        for name, role in _ROLE_OF.items():
            workers = [self._workers.get(m.incarnation) for m in members if m.role == role]
            # one that is not there yet counts before all others
            other = [count for count in workers if count != wanted.get(name)]
            count = other[0] if other else wanted.get(name)
            if workers and count is not None and None not in workers:
                running[name] = count
        return running

    def messages(
        self, members: Sequence[Member], wanted: Mapping[str, int], now: float
    ) -> list[OutgoingMessage]:
        """What the roles must be told: a count that is not the one they reported."""
        alive = {member.incarnation for member in members}
        for known in (self._workers, self._told, self._heard_at):
            for gone in known.keys() - alive:
                known.pop(gone)
        messages = []
        for name, role in _ROLE_OF.items():
            for member in members:
                if name not in wanted or member.role != role:
                    continue
                running = self._workers.get(member.incarnation)
                if running is None:
                    continue
                # a worker that is not ready yet, or not gone, may still be of an older wish
                count, at = self._told.get(member.incarnation, (running, now))
                if running == wanted[name] == count:
                    continue
                if count != wanted[name] or now - at >= _REMIND_EVERY_S or now < at:
                    self._told[member.incarnation] = (wanted[name], now)
                    messages.append(OutgoingMessage(member.address, SetWorkers(wanted[name])))
        return messages


def count_actors(members: Sequence[Member]) -> int:
    """How many of the living are actors."""
    return sum(member.role == ACTOR.name for member in members)
