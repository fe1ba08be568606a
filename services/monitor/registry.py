"""The members of the run: roles that said hello, and when they were last heard."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from aclearn.config import MAX_PROCESSES
from aclearn.wire import AllowedKey, Envelope, Message
from services.monitor.role_numbers import HandedOutNumbers
from services.roles import TRAINER

#: Most bytes of the list of serving roles: it travels in one header of at most 64 KiB.
_MOST_LISTED_BYTES = 56 * 1024
#: Bytes of an entry beside its texts, and of an endpoint beside its two: field names, lengths.
_ENTRY_BYTES, _ENDPOINT_BYTES = 112, 6

#: Silence after which a second process of a name replaces the first: the longer of these seconds
#: and these heartbeats.
_REPLACED_AFTER_S, _REPLACED_AFTER_HEARTBEATS = 2.0, 4
#: Least heartbeats within the silence of a dead process.
_WITHIN_SILENCE = 4

#: Incarnations of servers whose key was revoked: they fit the header beside the list.
_REVOKED_KEPT = 64


@dataclass(frozen=True)
class Member:
    """One living process of the run.

    Attributes:
        spaces: digests of its environment's spaces; empty if it has none.
        server_key: public key that its servers prove; empty without keys.
        key: name of the key that it has proved; empty without keys.
    """

    role: str
    number: int
    incarnation: str
    routing_id: bytes
    endpoints: dict[str, str]
    host: str = ""
    pid: int = 0
    generation: int = 0
    spaces: Mapping[str, str] = field(default_factory=dict)
    server_key: str = ""
    key: str = ""

    @property
    def name(self) -> str:
        """Unique among living processes, e.g. actor-3."""
        return f"{self.role}-{self.number}"

    @property
    def listed_bytes(self) -> int:
        """Upper bound of its bytes in the list of serving roles."""
        if not self.endpoints:
            return 0
        own = (self.role, self.name, self.incarnation, self.server_key)
        texts = (*own, *self.endpoints, *self.endpoints.values())
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


class Sender(NamedTuple):
    """Whose message it is, and when it came."""

    routing_id: bytes
    envelope: Envelope
    now: float

    @property
    def incarnation(self) -> str:
        """Of the process that sent it."""
        return self.envelope.incarnation


class Registry:
    """Members by incarnation. Pure: time is an argument.

    A name stays with its process while that is heard. A second process of the name waits until the
    first has left or has missed four heartbeats, of two seconds at least. `revision` grows with
    each change of the members that have endpoints, never with a heartbeat. A message of a member
    takes the same time for any number of members.

    Args:
        heartbeat_every_s: time between two heartbeats of a member.
        heartbeats_per_s: most of those without endpoints, whose heartbeats are rarer if there are
            too many.
        first_numbers: role → its lowest number to hand out, 0 if missing.
        most: largest number of members, and what sets it.

    Attributes:
        revoked: incarnations of the latest servers that left because their key was revoked.
    """

    def __init__(
        self,
        *,
        silent_after_s: float,
        heartbeat_every_s: float = 0.5,
        heartbeats_per_s: float = 600.0,
        first_numbers: Mapping[str, int] | None = None,
        most: tuple[int, str] = (MAX_PROCESSES, "monitor.max_processes"),
    ) -> None:
        self._most, self._bound = most
        self.silent_after_s, self._heartbeats_per_s = silent_after_s, heartbeats_per_s
        self._heartbeat_every_s = heartbeat_every_s
        self._members: dict[str, Member] = {}
        #: The same by role; their incarnations by role and number; those that have endpoints, and
        #: those that have spaces.
        self._by_role: defaultdict[str, dict[str, Member]] = defaultdict(dict)
        self._named: dict[tuple[str, int], str] = {}
        self._serving: dict[str, Member] = {}
        self._with_spaces: dict[str, Member] = {}
        #: Incarnation → time of its last message, the one that is silent for longest first.
        self._heard_at: OrderedDict[str, float] = OrderedDict()
        #: Incarnation → time between two heartbeats when it was heard last, which it was told.
        self._told_s: dict[str, float] = {}
        #: Name of a key → number of its members.
        self._of_key: Counter[str] = Counter()
        self._in_order: tuple[Member, ...] | None = ()
        self._numbers = HandedOutNumbers(first_numbers or {})
        self.revision = 0
        self.revoked = deque[str](maxlen=_REVOKED_KEPT)

    @property
    def members(self) -> tuple[Member, ...]:
        """The living processes, in order of role and number; the same object until one changes."""
        if self._in_order is None:
            self._in_order = tuple(sorted(self._members.values(), key=_place))
        return self._in_order

    @property
    def serving(self) -> list[Member]:
        """Those of the members that have endpoints, in the same order."""
        return sorted(self._serving.values(), key=_place)

    @property
    def roles(self) -> Collection[str]:
        """The roles that have a member."""
        return {role for role, members in self._by_role.items() if members}

    def get(self, incarnation: str) -> Member | None:
        """The member of that incarnation; None if it is unknown."""
        return self._members.get(incarnation)

    def hand_out(
        self, incarnation: str, role: str, now: float, *, most: int | None = None
    ) -> int | None:
        """A number for a process without a name; a process that asks again gets the same one.

        Args:
            most: exact number of the role's processes, of which the next one gets the place of one
                that is not there, or has been silent for a while; None: any number may join.

        Returns:
            None if all places are taken.
        """
        known = self._members.get(incarnation)
        if known is not None and known.role == role:
            return known.number

        def is_taken(number: int) -> bool:
            holder = self._named.get((role, number))
            return holder is not None and (most is None or not self._is_replaced(holder, now))

        return self._numbers.give(incarnation, role, is_taken, now, most=most)

    def spaces_for(self, newcomer: Member) -> Mapping[str, str]:
        """The spaces that a newcomer must have: the trainer's, without one those of any member.

        Empty for a trainer.
        """
        if newcomer.role == TRAINER.name:
            return {}
        others = chain(self._by_role[TRAINER.name].values(), self._with_spaces.values())
        spaces = (m.spaces for m in others if m.incarnation != newcomer.incarnation)
        return next((each for each in spaces if each), {})

    def refusal(self, newcomer: Member) -> str | None:
        """Why a process cannot join, as text for its log; None if it can."""
        known = newcomer.incarnation in self._members or self._namesake(newcomer) is not None
        if not known and len(self._members) >= self._most:
            return (
                f"the run has {self._most} processes, the most by {self._bound}; raise that, or "
                "put more environments into each actor (actors.envs_per_group)"
            )
        if not newcomer.endpoints:
            return None
        others = (m for m in self._serving.values() if m.incarnation != newcomer.incarnation)
        listed = newcomer.listed_bytes + sum(m.listed_bytes for m in others)
        if listed > _MOST_LISTED_BYTES:
            return (
                f"the list of predictors and compressors does not fit one message: "
                f"{listed} bytes with this one, at most {_MOST_LISTED_BYTES}; start fewer of them"
            )
        return None

    def taken_by(self, newcomer: Member, now: float) -> str | None:
        """Why the newcomer must wait for its name; None if the name is free."""
        given = self._numbers.holder(newcomer.role, newcomer.number, now)
        if given is not None and given != newcomer.incarnation:
            return f"{newcomer.name} was given to a process that is starting; this one waits"
        namesake = self._namesake(newcomer)
        if namesake is None or self._is_replaced(namesake.incarnation, now):
            return None
        return (
            f"{newcomer.name} is process {namesake.pid} on {namesake.host}, which lives; this one "
            "waits until that has left. Give each process a --name of its own"
        )

    def hello(self, member: Member, now: float) -> Member | None:
        """Add a member that `refusal` accepts; returns the one that it replaces, if any."""
        replaced = self._namesake(member)
        if replaced is not None:
            self.leave(replaced.incarnation)
        self._numbers.settle(member.incarnation, member.role, member.number)
        known = self._take_out(member.incarnation)
        self._in_order = None
        self._members[member.incarnation] = member
        self._by_role[member.role][member.incarnation] = member
        self._named[member.role, member.number] = member.incarnation
        self._of_key[member.key] += 1
        if member.endpoints:
            self._serving[member.incarnation] = member
        if member.spaces:
            self._with_spaces[member.incarnation] = member
        self._heard_at[member.incarnation] = now
        if member.endpoints != ({} if known is None else known.endpoints):
            self.revision += 1
        return replaced

    def every_s(self, member: Member | None = None) -> float:
        """Time between two heartbeats of a member; without one, of those that serve nobody."""
        if member is not None and member.endpoints:
            return self._heartbeat_every_s
        fitting_s = (len(self._members) - len(self._serving)) / self._heartbeats_per_s
        return max(self._heartbeat_every_s, min(fitting_s, self.silent_after_s / _WITHIN_SILENCE))

    def heard(self, incarnation: str, now: float) -> Member | None:
        """Update the time of a member's last message; None if it is no member."""
        member = self._members.get(incarnation)
        if member is not None:
            self._heard_at[incarnation] = now
            self._heard_at.move_to_end(incarnation)
            self._told_s[incarnation] = self.every_s(member)
        return member

    def leave(self, incarnation: str) -> Member | None:
        """Remove and return a member; None if it is no member."""
        member = self._take_out(incarnation)
        if member is not None and member.endpoints:
            self.revision += 1
        return member

    def with_key(self, key: AllowedKey, newcomer: str, role: str, number: int | None) -> int:
        """The number of members of a key, but for the incarnation `newcomer`.

        Nor does the process count whose name, of `role` and `number`, the newcomer takes.
        """
        left_out = {newcomer}
        if number is not None and (namesake := self._named.get((role, number))) is not None:
            left_out.add(namesake)
        members = (self._members.get(incarnation) for incarnation in left_out)
        return self._of_key[key.name] - sum(m is not None and m.key == key.name for m in members)

    def take_out_revoked(self, valid: Collection[str]) -> list[Member]:
        """Remove and return the members whose key is not valid; all get the list of peers again."""
        revoked = [m for m in self._members.values() if m.key and m.key not in valid]
        for member in revoked:
            self.leave(member.incarnation)
            if member.endpoints:
                self.revoked.append(member.incarnation)
        self.revision += 1
        return revoked

    def take_out_silent(self, now: float) -> list[Member]:
        """Remove and return the members that were silent for too long."""
        silent: list[Member] = []
        while self._heard_at:
            incarnation, heard_at = next(iter(self._heard_at.items()))
            if now - heard_at <= self.silent_after_s:
                break
            silent.append(self._members[incarnation])
            self.leave(incarnation)
        return silent

    def _take_out(self, incarnation: str) -> Member | None:
        member = self._members.pop(incarnation, None)
        if member is not None:
            self._in_order = None
            del self._by_role[member.role][incarnation]
            del self._named[member.role, member.number], self._heard_at[incarnation]
            self._told_s.pop(incarnation, None)
            self._serving.pop(incarnation, None)
            self._with_spaces.pop(incarnation, None)
            self._of_key[member.key] -= 1
            self._numbers.free(member.role, member.number)
        return member

    def _is_replaced(self, incarnation: str, now: float) -> bool:
        """Whether a member is silent for so long that another process may have its name."""
        every_s = max(self.every_s(self._members[incarnation]), self._told_s.get(incarnation, 0.0))
        after_s = max(_REPLACED_AFTER_S, _REPLACED_AFTER_HEARTBEATS * every_s)
        return now - self._heard_at[incarnation] > after_s

    def _namesake(self, newcomer: Member) -> Member | None:
        """The other member with the newcomer's name."""
        incarnation = self._named.get((newcomer.role, newcomer.number), newcomer.incarnation)
        return None if incarnation == newcomer.incarnation else self._members[incarnation]


def _place(member: Member) -> tuple[str, int]:
    return member.role, member.number
