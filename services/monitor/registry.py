"""The members of the run: roles that said hello, and when they were last heard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aclearn.config import MAX_PROCESSES
from aclearn.wire import Message
from services.monitor.role_numbers import HandedOutNumbers

#: Most bytes of the list of the roles that serve others: it travels in one header, of 64 KiB.
_MOST_LISTED_BYTES = 56 * 1024
#: Bytes of an entry beside its texts, and of an endpoint beside its two: names of fields, lengths.
_ENTRY_BYTES, _ENDPOINT_BYTES = 64, 6


@dataclass(frozen=True)
class Member:
    """One living process of the run.

    Attributes:
        number: of the name, e.g. 3 of actor-3.
        routing_id: of its socket, where messages to it go.
        heard_at: when it last said anything, in seconds of the clock that the registry is given.
        host: the machine's name.
        pid: of the process, on its own machine.
    """

    role: str
    number: int
    incarnation: str
    routing_id: bytes
    endpoints: dict[str, str]
    heard_at: float
    host: str = ""
    pid: int = 0

    @property
    def name(self) -> str:
        """Unique among the living, e.g. actor-3."""
        return f"{self.role}-{self.number}"

    @property
    def listed_bytes(self) -> int:
        """Its bytes in the list of the roles that serve others, at most."""
        if not self.endpoints:
            return 0
        texts = (self.role, self.name, self.incarnation, *self.endpoints, *self.endpoints.values())
        return (
            _ENTRY_BYTES
            + _ENDPOINT_BYTES * len(self.endpoints)
            + sum(len(text.encode()) for text in texts)
        )


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to a member, by its routing id."""

    routing_id: bytes
    message: Message


class Registry:
    """Members by incarnation. Pure: the clock's value is given.

    A name stays with its process for as long as that is heard. A second process of the name waits;
    it replaces the first when that has left, or has not been heard for `replaced_after_s`.
    `revision` grows with every change of the members that have endpoints, which are the ones that
    others must know; never with a heartbeat.

    Args:
        silent_after_s: silence after which a member is taken out.
        replaced_after_s: silence after which a second process of its name replaces a member.
        first_numbers: role → its lowest number to hand out, 0 where it is missing.
    """

    def __init__(
        self,
        *,
        silent_after_s: float,
        replaced_after_s: float = 2.0,
        first_numbers: Mapping[str, int] | None = None,
    ) -> None:
        self.silent_after_s, self._replaced_after_s = silent_after_s, replaced_after_s
        self._members: dict[str, Member] = {}
        self._numbers = HandedOutNumbers(first_numbers or {})
        self.revision = 0

    @property
    def members(self) -> list[Member]:
        """The living, in order of role and number."""
        return sorted(self._members.values(), key=lambda m: (m.role, m.number))

    def get(self, incarnation: str) -> Member | None:
        """The member of that incarnation, None when it is not known."""
        return self._members.get(incarnation)

    def hand_out(self, incarnation: str, role: str, now: float) -> int:
        """A number for a process without a name; the same one to a process that asks again."""
        known = self._members.get(incarnation)
        if known is not None and known.role == role:
            return known.number
        taken = {m.number for m in self._members.values() if m.role == role}
        return self._numbers.give(incarnation, role, taken, now)

    def refusal(self, newcomer: Member) -> str | None:
        """Why that process cannot be taken in, in words for its log; None where it can."""
        known = newcomer.incarnation in self._members or self._namesake(newcomer) is not None
        if not known and len(self._members) >= MAX_PROCESSES:
            return (
                f"the run has {MAX_PROCESSES} processes, as many as it may; put more environments "
                "into each actor (actors.envs_per_group)"
            )
        others = (m for m in self._members.values() if m.incarnation != newcomer.incarnation)
        listed = newcomer.listed_bytes + sum(m.listed_bytes for m in others)
        if newcomer.endpoints and listed > _MOST_LISTED_BYTES:
            return (
                f"the run has as many predictors and compressors as one message can list: "
                f"{listed} bytes with this one, of {_MOST_LISTED_BYTES}"
            )
        return None

    def taken_by(self, newcomer: Member) -> str | None:
        """The living process that has the newcomer's name, in words; None where it is free."""
        given = self._numbers.holder(newcomer.role, newcomer.number, newcomer.heard_at)
        if given is not None and given != newcomer.incarnation:
            return f"{newcomer.name} was given to a process that is starting; this one waits"
        namesake = self._namesake(newcomer)
        if namesake is None or newcomer.heard_at - namesake.heard_at > self._replaced_after_s:
            return None
        return (
            f"{newcomer.name} is process {namesake.pid} on {namesake.host}, which lives; this one "
            "waits until that has left. Give each process a --name of its own"
        )

    def hello(self, member: Member) -> Member | None:
        """Take a member in that is not refused; the one that it replaces, if there is one."""
        replaced = self._namesake(member)
        if replaced is not None:
            self.leave(replaced.incarnation)
        self._numbers.settle(member.incarnation, member.role, member.number)
        known = self._members.get(member.incarnation)
        self._members[member.incarnation] = member
        if member.endpoints != ({} if known is None else known.endpoints):
            self.revision += 1
        return replaced

    def heard(self, incarnation: str, now: float) -> Member | None:
        """Note a sign of life of a member; None where the incarnation is none."""
        if incarnation in self._members:
            member = replace(self._members[incarnation], heard_at=now)
            self._members[incarnation] = member
            return member
        return None

    def leave(self, incarnation: str) -> Member | None:
        """Take a member out that said goodbye; None where it was none."""
        member = self._members.pop(incarnation, None)
        if member is not None and member.endpoints:
            self.revision += 1
        return member

    def take_out_silent(self, now: float) -> list[Member]:
        """Take out and return those not heard for too long."""
        silent = [m for m in self._members.values() if now - m.heard_at > self.silent_after_s]
        for member in silent:
            self.leave(member.incarnation)
        return silent

    def _namesake(self, newcomer: Member) -> Member | None:
        """The other member of the newcomer's name."""
        for member in self._members.values():
            same = (member.role, member.number) == (newcomer.role, newcomer.number)
            if same and member.incarnation != newcomer.incarnation:
                return member
        return None
