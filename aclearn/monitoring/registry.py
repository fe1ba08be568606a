"""Who is there: the roles that said hello, and when they were last heard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from aclearn.config import MOST_PROCESSES

_REPLACED_KEPT: Final = 4096
"""Replaced processes that are remembered; the oldest is forgotten first."""


@dataclass(frozen=True)
class Member:
    """One living process of the run.

    Attributes:
        address: where to send to it: its routing id.
        heard_at: when it last said anything, in seconds of the clock that the registry is given.
        pid: of the process, on its own machine.
    """

    role: str
    name: str
    incarnation: str
    address: bytes
    endpoints: dict[str, str]
    heard_at: float
    pid: int = 0


class Registry:
    """Members by incarnation. Pure: the clock's value is given.

    A second process of one name replaces the first: it is the same role started again. Should the
    first still live, `refusal` says so when it comes back.
    `generation` grows with every change of the membership, never with a beat.
    """

    def __init__(self, *, silent_after_s: float) -> None:
        self.silent_after_s = silent_after_s
        self._members: dict[str, Member] = {}
        self._replaced: dict[str, None] = {}
        self.generation = 0

    @property
    def members(self) -> list[Member]:
        """The living, in order of role and name."""
        return sorted(self._members.values(), key=lambda m: (m.role, m.name))

    def get(self, incarnation: str) -> Member | None:
        """The member of that incarnation, None when it is not known."""
        return self._members.get(incarnation)

    def refusal(self, incarnation: str, name: str) -> str | None:
        """Why that process cannot be taken in, in words for its log; None where it can."""
        if incarnation in self._replaced:
            return (
                f"another process was started under the name {name} and has taken this one's "
                "place; give each process a --name of its own"
            )
        known = incarnation in self._members or any(m.name == name for m in self.members)
        if not known and len(self._members) >= MOST_PROCESSES:
            return (
                f"the run has {MOST_PROCESSES} processes, as many as it may; put more environments "
                "into each actor (actors.envs_per_group)"
            )
        return None

    def hello(self, member: Member) -> list[Member]:
        """Take a member in that is not refused; returns those that it replaces."""
        replaced = [
            other
            for other in self._members.values()
            if other.name == member.name and other.incarnation != member.incarnation
        ]
        for other in replaced:
            del self._members[other.incarnation]
            self._replaced[other.incarnation] = None
            if len(self._replaced) > _REPLACED_KEPT:
                del self._replaced[next(iter(self._replaced))]
        known = self._members.get(member.incarnation)
        self._members[member.incarnation] = member
        if replaced or known is None or known.endpoints != member.endpoints:
            self.generation += 1
        return replaced

    def heard(self, incarnation: str, now: float) -> bool:
        """Note a sign of life; False when the incarnation is not a member."""
        member = self._members.get(incarnation)
        if member is None:
            return False
        self._members[incarnation] = replace(member, heard_at=now)
        return True

    def leave(self, incarnation: str) -> Member | None:
        """Take a member out that said goodbye."""
        member = self._members.pop(incarnation, None)
        if member is not None:
            self.generation += 1
        return member

    def take_out_silent(self, now: float) -> list[Member]:
        """Take out and return those not heard for too long."""
        silent = [m for m in self._members.values() if now - m.heard_at > self.silent_after_s]
        for member in silent:
            self.leave(member.incarnation)
        return silent
