"""Who takes part in the run: numbers, hellos, keys, and what members are told of each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aclearn.telemetry import ActiveClock
from aclearn.wire import (
    AllowedKey,
    AllowedKeys,
    Hello,
    MembershipReply,
    Message,
    Number,
    NumberRequest,
    Peer,
    Peers,
)
from services.monitor.claims import endpoint_fault, hello_fault, number_fault
from services.monitor.ending import Ending, Phase
from services.monitor.registry import Member, OutgoingMessage, Registry, Sender
from services.monitor.status_report import StatusReport
from services.role.agreement import differing, spaces_in
from services.roles import ROLES, TRAINER


class Membership:
    """Admits processes, and tells them of each other. Pure: time is an argument.

    Args:
        clock: by which silence is measured.
        ending: of the run, after whose begin nobody joins.
        digests: of what every process must have in common with the monitor.
        fixed: role → number of its processes, where that is exact.
        numbers_from: time of the first number that is handed out.
        on_left: called with the incarnation of each member that has left, and whether its metrics
            are kept.
    """

    def __init__(
        self,
        registry: Registry,
        report: StatusReport,
        clock: ActiveClock,
        ending: Ending,
        *,
        digests: Mapping[str, str],
        fixed: Mapping[str, int],
        numbers_from: float,
        on_left: Callable[[str, bool], object],
    ) -> None:
        self._registry, self._report, self._clock = registry, report, clock
        self._ending, self._on_left = ending, on_left
        self._digests, self._fixed, self._numbers_from = digests, fixed, numbers_from
        self._keys: AllowedKeys | None = None
        self._sent_revision = 0

    def number(self, request: NumberRequest, sender: Sender) -> list[Message]:
        """Give a process without a name its number."""
        if (fault := number_fault(request.role, self._fixed)) is not None:
            return [MembershipReply("leave", fault)]
        if self._ending.phase is not Phase.RUNNING:
            return [MembershipReply("stop", self._ending.reason or "")]
        if sender.now < self._numbers_from:
            return []  # the process asks again
        if waits := self._key_full(request.role, None, sender):
            return waits
        most = self._fixed.get(request.role)
        number = self._registry.hand_out(
            sender.incarnation, request.role, self._clock.seconds, most=most
        )
        if number is None:
            words = f"all {most} processes of role {request.role} are there; this one waits"
            return [MembershipReply("full", words)]
        return [Number(number)]

    def hello(self, hello: Hello, sender: Sender) -> list[Message]:
        """Admit a process, or say why not."""
        incarnation, now = sender.incarnation, self._clock.seconds
        member = Member(
            hello.role,
            hello.number,
            incarnation,
            sender.routing_id,
            dict(hello.endpoints),
            host=hello.host,
            pid=hello.pid,
            generation=hello.generation,
            spaces={} if hello.forced else spaces_in(hello.digests),
            server_key=hello.server_key,
            key="" if sender.envelope.key is None else sender.envelope.key.name,
        )
        refusal = (
            hello_fault(incarnation, hello, self._fixed)
            # roles of one process, without keys, have addresses of its own
            or (None if sender.envelope.key is None else endpoint_fault(hello))
            or self._registry.refusal(member)
            or self._difference(member, hello)
        )
        if refusal is not None:
            process = f"{member.name} at {hello.host} (process {hello.pid})"
            self._report.event_once(incarnation, refusal, f"{process} is refused: {refusal}")
            return [MembershipReply("leave", refusal)]
        if waits := self._key_full(hello.role, hello.number, sender):
            return waits
        if (holder := self._registry.taken_by(member, now)) is not None:
            if self._ending.phase is not Phase.RUNNING:
                return [MembershipReply("stop", self._ending.reason or "")]
            return [MembershipReply("wait", holder)]
        if hello.note and self._registry.get(incarnation) is None:
            self._report.event(f"{member.name} is back: {hello.note}")
        self._report.joined(member)
        if (replaced := self._registry.hello(member, now)) is not None:
            self.leave(replaced)
            self._report.event(f"{replaced.name} was restarted")
        if member.role == TRAINER.name:
            # they say hello again, and are refused by name of what differs
            for other in self._registry.members:
                if other.spaces and differing(other.spaces, member.spaces):
                    self.leave(other)
        return self._told(member, self._peers())

    def leave(self, member: Member, *, keep_metrics: bool = False) -> None:
        """Take out a member."""
        self._registry.leave(member.incarnation)
        self._on_left(member.incarnation, keep_metrics)

    def look(self) -> list[OutgoingMessage]:
        """Take out the silent; the list of peers for all members if it has changed."""
        for member in self._registry.take_out_silent(self._clock.seconds):
            self.leave(member)
            self._report.silent(member)
        if self._registry.revision == self._sent_revision:
            return []
        self._sent_revision, peers = self._registry.revision, self._peers()
        return [
            OutgoingMessage(member.routing_id, message)
            for member in self._registry.members
            for message in self._told(member, peers)
        ]

    def allow(self, keys: Sequence[AllowedKey]) -> None:
        """Tell the roles of a new list of keys; members whose key is not on it have to go."""
        self._keys = AllowedKeys(list(keys))
        for member in self._registry.take_out_revoked({k.name for k in keys if not k.revoked}):
            self.leave(member)
            self._report.event(f"{member.name} is refused: its key {member.key} was revoked")

    def key_fault(self, sender: Sender) -> str | None:
        """Why the sender's key does not allow this message, as text for its log; None if it does.

        Which kinds a key may send at all, the server has checked.
        """
        message, key = sender.envelope.message, sender.envelope.key
        if key is None:
            return None
        known = self._registry.get(sender.incarnation)
        if known is not None and known.key != key.name:
            return f"its key is {key.name}, and {known.name} of that incarnation has another one"
        if not isinstance(message, Hello | NumberRequest):
            return None
        if message.role not in key.roles:
            role = message.role if message.role in ROLES else "an unknown role"
            return f"its key {key.name} is for {' and '.join(key.roles)}, not for {role}"
        return None

    def _key_full(self, role: str, number: int | None, sender: Sender) -> list[Message]:
        """What a process is told for whose key too many are there; nothing if it has a place.

        It waits: one that was started again may only be there twice until the silence is seen.
        """
        key = sender.envelope.key
        if key is None or not key.processes:
            return []
        if self._registry.with_key(key, sender.incarnation, role, number) < key.processes:
            return []
        if self._ending.phase is not Phase.RUNNING:
            return [MembershipReply("stop", self._ending.reason or "")]
        words = f"its key {key.name} is for at most {key.processes} processes, which are there"
        self._report.event_once(key.name, words, f"a process waits: {words}")
        return [MembershipReply("full", words)]

    def _difference(self, member: Member, hello: Hello) -> str | None:
        """Why a process cannot take part: it differs from the run. None if it does not."""
        spaces = {**self._registry.spaces_for(member), **spaces_in(self._digests)}
        run = {**self._digests, **spaces}
        if not ROLES[hello.role].needs_environment:
            run = {key: digest for key, digest in run.items() if key not in spaces}
        differs = differing(hello.digests, run)
        if not differs:
            return None
        words = ", ".join(differs)
        if hello.forced:
            forced = f"{member.name} takes part by --force, although it differs in {words}"
            self._report.event_once(member.incarnation, "forced", forced)
            return None
        return (
            f"it differs from the run in {words}; start it with the run's own configuration "
            "(its config.yaml) and environment, or with --force"
        )

    def _told(self, member: Member, peers: Peers) -> list[Message]:
        """What a member is told of the others; one that serves, of the keys before."""
        keys = [self._keys] if self._keys is not None and member.endpoints else []
        return [*keys, peers]

    def _peers(self) -> Peers:
        peers = [
            Peer(m.role, m.name, m.incarnation, dict(m.endpoints), m.generation, m.server_key)
            for m in self._registry.serving
        ]
        return Peers(self._registry.revision, peers, list(self._registry.revoked))
