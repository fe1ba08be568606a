"""The monitor's state and its steps: events in, messages out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aclearn.control import Directive, Note, SaveBest, StopCondition, StopRole, StopRun, obey
from aclearn.metrics import MetricsAggregator
from aclearn.metrics.formatting import printable
from aclearn.metrics.indicators import IndicatorSet
from aclearn.metrics.names import POLICIES
from aclearn.metrics.policies import of_policies
from aclearn.telemetry import ActiveClock
from aclearn.wire import (
    Action,
    ActionReply,
    AllowedKey,
    AllowedKeys,
    DirectiveAck,
    DirectiveMessage,
    Envelope,
    ErrorReply,
    Heartbeat,
    HeartbeatReply,
    Hello,
    MembershipReply,
    Message,
    Number,
    NumberRequest,
    Peer,
    Peers,
    Status,
    StatusRequest,
)
from services.monitor.actions import Actions
from services.monitor.claims import (
    MOST_GAUGES,
    MOST_LABEL_BYTES,
    MOST_LABELS,
    HeartbeatClaims,
    endpoint_fault,
    hello_fault,
    number_fault,
    without_too_much,
)
from services.monitor.directive_channel import USER, USER_RANK, DirectiveChannel
from services.monitor.ending import GOODBYE_WITHIN_S, Ending, Phase
from services.monitor.judge import Judge
from services.monitor.lines import Lines
from services.monitor.plugins import Plugins
from services.monitor.registry import Member, OutgoingMessage, Registry
from services.monitor.status_report import MOST_EVENT, StatusReport, status_text
from services.role.agreement import differing, spaces_in
from services.roles import EVALUATOR, MONITOR, ROLES, TRAINER

#: A longer time without a step is a suspended monitor, not silent members. It is a share of
#: `silent_after_s`; a slow disk may cause shorter ones.
_AWAY_SHARE = 0.25
#: Least seconds between two calls of the plug-ins.
_OBSERVE_EVERY_S = 0.1
#: The rank that saves.
_FIRST_TRAINER = f"{TRAINER.name}-0"
#: Gauges of refusals that an event names once for each process.
_SAID_REFUSALS: Mapping[str, str] = {
    "refused_keys": "connections of keys that are unknown or revoked",
    "refused_rights": "messages for which the sender's key is not",
}
_ONE_EACH: Mapping[str, int] = {MONITOR.name: 1, TRAINER.name: 1}


class _Sender(NamedTuple):
    """Whose message it is, and when it came."""

    routing_id: bytes
    envelope: Envelope
    now: float

    @property
    def incarnation(self) -> str:
        return self.envelope.incarnation


class MonitorState:
    """Members, metrics, directives and the end of the run.

    Pure: time is an argument; it sends nothing.

    Args:
        expected: role → configured number of processes.
        fixed: of these the roles that have exactly so many.
        wall_clock: the run's time in seconds, for metrics; without it, the time argument is used.
        directives: of the monitor before, as of `DirectiveChannel.state`.
        numbers_from: time of the first number that is handed out: a restarted monitor must first
            learn the numbers of living processes.
        digests: of what every process must have in common with the monitor.
        judge: of the evaluations; None without an evaluator.
        offers_best: whether means of training decide which policy is the best.
        policies, judged: names of several policies, and of those whose episodes indicators see.
        actions_key: which a user's actions must have; "" refuses all.
        on_action: called with each of them that is in force, and ""; again with its receiver's
            refusal, which ends that.

    Attributes:
        refused: number of heartbeats with implausible values, and of directives of others.
        not_allowed: number of messages for which the sender's key is not.
    """

    def __init__(
        self,
        registry: Registry,
        metrics: MetricsAggregator,
        goal: StopCondition,
        plugins: Plugins,
        *,
        indicators: IndicatorSet | None = None,
        expected: Mapping[str, int] | None = None,
        fixed: Mapping[str, int] | None = None,
        numbers_from: float = float("-inf"),
        wall_clock: Callable[[], float] | None = None,
        figures: Callable[[], Mapping[str, Any]] = dict,
        directives: Mapping[str, Any] | None = None,
        frames_per_step: int | None = None,
        digests: Mapping[str, str] | None = None,
        judge: Judge | None = None,
        offers_best: bool = True,
        policies: Sequence[str] = (),
        judged: Sequence[str] = (),
        actions_key: str = "",
        on_action: Callable[[Action, str], object] = lambda action, refusal: None,
    ) -> None:
        self._judge, self._offers_best = judge, offers_best
        self._wall_clock, self._own_figures = wall_clock, figures
        self._digests, self._fixed = dict(digests or {}), {**_ONE_EACH, **(fixed or {})}
        self._registry, self._metrics, self._goal = registry, metrics, goal
        self._plugins, self._numbers_from = plugins, numbers_from
        self._channel, self._ending = DirectiveChannel(), Ending()
        self._channel.restore(directives or {}, self._rank_of)
        self._actions, self._on_action = Actions(actions_key, plugins.check), on_action
        self.report = StatusReport()
        self._observed_at = float("-inf")
        #: The first process that asks for the status, until it is silent; directives reach it.
        self._supervisor: Member | None = None
        #: Whether it asks again and again; a container that gives up asks once.
        self._is_watched = False
        self._in_haste = False
        self._sent_revision = 0
        self._active_clock = ActiveClock(_AWAY_SHARE * registry.silent_after_s)
        self._claims = HeartbeatClaims(policies)
        self.refused = self.not_allowed = 0
        self._keys: AllowedKeys | None = None
        self._lines = Lines(
            metrics,
            plugins,
            indicators or IndicatorSet(),
            self._figures,
            expected or {},
            frames_per_step=frames_per_step,
            judged=judged,
        )
        self.line: dict[str, Any] = {}
        self._best_due = False

    @property
    def directives(self) -> dict[str, Any]:
        """The directives that the next monitor continues with."""
        return self._channel.state()

    @property
    def phase(self) -> Phase:
        """How far the end of the run has come."""
        return self._ending.phase

    @property
    def reason(self) -> str | None:
        """Why the run ends; None while it continues."""
        return self._ending.reason

    def take(self, routing_id: bytes, envelope: Envelope, now: float) -> list[OutgoingMessage]:
        """Take one message; returns the answers."""
        sender = _Sender(routing_id, envelope, now)
        if (fault := self._key_fault(sender)) is None:
            answers = _TAKEN[type(envelope.message)](self, envelope.message, sender)
        else:
            self.not_allowed += 1
            # by its key: a sender chooses its incarnation, and could fill the events with others
            key = "" if envelope.key is None else envelope.key.name
            self.report.event_once(key, fault, f"a process is refused: {fault}")
            answers = [MembershipReply("leave", fault)]
        return [OutgoingMessage(routing_id, answer) for answer in answers]

    def allow(self, keys: Sequence[AllowedKey]) -> None:
        """Tell the roles of a new list of keys; members whose key is not on it have to go."""
        self._keys = AllowedKeys(list(keys))
        for member in self._registry.take_out_revoked({k.name for k in keys if not k.revoked}):
            self._leave(member)
            self.report.event(f"{member.name} is refused: its key {member.key} was revoked")

    def observe_time(self, now: float) -> list[OutgoingMessage]:
        """Detect silence, ask the plug-ins and advance the ending; returns the due messages."""
        messages: list[OutgoingMessage] = []
        if away_s := self._active_clock.look(now):
            self.report.event(f"the monitor itself was suspended for {away_s:.1f} s")
        for member in self._registry.take_out_silent(self._active_clock.seconds):
            self._leave(member)
            self.report.silent(member)
        if self._registry.revision != self._sent_revision:
            self._sent_revision = self._registry.revision
            messages = [
                OutgoingMessage(member.routing_id, message)
                for member in self._registry.members
                for message in self._told(member)
            ]
        self._channel.meet(self._receivers())
        if self._judge is not None and self.phase is Phase.RUNNING:
            present = any(member.role == EVALUATOR.name for member in self._registry.members)
            for text in self._judge.look(present, self._active_clock.seconds):
                self.report.note(text)
        if self._best_due:
            self._offer_best()
        if self.phase is Phase.RUNNING and not 0.0 <= now - self._observed_at < _OBSERVE_EVERY_S:
            self._observed_at = now
            self._ask_plugins(now)
        self._end(now)
        return messages + self._channel.messages(now)

    def make_line(self, now: float) -> dict[str, Any]:
        """The metrics line to write now; it may end the run."""
        self.line = self._lines.make(now, self._wall(now), running=self.phase is Phase.RUNNING)
        self._best_due = True
        reason = self._goal.observe(self.line)
        self.line |= self._goal.fields(self.line)
        if reason is not None:
            self.stop(reason, now)
        return self.line

    def stop(self, reason: str, now: float, *, in_haste: bool = False) -> None:
        """End the run in order, for the first reason given; in haste it waits for no busy role."""
        self._in_haste |= in_haste
        if self._ending.begin(reason[:MOST_EVENT], now):
            self.report.event(f"run ends: {reason}")

    def leave(self, reason: str) -> None:
        """End the monitor alone; the other roles continue, and the next monitor finds them."""
        self._ending.leave(reason)
        self.report.event(f"the monitor leaves: {reason}")

    def status(self) -> dict[str, Any]:
        """The status for the supervisor."""
        fixed = {"phase": self.phase.value, "reason": self.reason, "line": self.line}
        return fixed | self.report.fields(self._registry.members)

    def _figures(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """The monitor's own figures of a line that has those of the roles."""
        judge = self._judge.fields(line["time_s"]) if self._judge else {}
        judged = self._judge.fields_of_policies() if self._judge else {}
        goal = self._goal.fields({**line, **judge})
        figures = {**goal, **self._channel.gauges(), **self._own_figures(), **judge}
        policies = of_policies(line, self._goal.fields_of_policies(), judged)
        return figures | ({POLICIES: policies} if policies else {})

    def _wall(self, now: float) -> float:
        return now if self._wall_clock is None else self._wall_clock()

    def _number(self, request: NumberRequest, sender: _Sender) -> list[Message]:
        if (fault := number_fault(request.role, self._fixed)) is not None:
            return [MembershipReply("leave", fault)]
        if sender.now < self._numbers_from:
            return []  # the process asks again
        if waits := self._key_full(request.role, None, sender):
            return waits
        now = self._active_clock.seconds
        most = self._fixed.get(request.role)
        number = self._registry.hand_out(sender.incarnation, request.role, now, most=most)
        if number is None:
            words = f"all {most} processes of role {request.role} are there; this one waits"
            return [MembershipReply("wait", words)]
        return [Number(number)]

    def _hello(self, hello: Hello, sender: _Sender) -> list[Message]:
        incarnation = sender.incarnation
        member = Member(
            hello.role,
            hello.number,
            incarnation,
            sender.routing_id,
            dict(hello.endpoints),
            heard_at=self._active_clock.seconds,
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
            self.report.event_once(incarnation, refusal, f"{process} is refused: {refusal}")
            return [MembershipReply("leave", refusal)]
        if waits := self._key_full(hello.role, hello.number, sender):
            return waits
        if (holder := self._registry.taken_by(member)) is not None:
            if self.phase is not Phase.RUNNING:
                return [MembershipReply("stop", self.reason or "")]
            return [MembershipReply("wait", holder)]
        if hello.note and self._registry.get(incarnation) is None:
            self.report.event(f"{member.name} is back: {hello.note}")
        self.report.joined(member)
        if (replaced := self._registry.hello(member)) is not None:
            self._leave(replaced)
            self.report.event(f"{replaced.name} was restarted")
        if member.role == TRAINER.name:
            # they say hello again, and are refused by name of what differs
            for other in self._registry.members:
                if other.spaces and differing(other.spaces, member.spaces):
                    self._leave(other)
        return self._told(member)

    def _key_fault(self, sender: _Sender) -> str | None:
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

    def _key_full(self, role: str, number: int | None, sender: _Sender) -> list[Message]:
        """What a process is told for whose key too many are there; nothing if it has a place.

        It waits: one that was started again may only be there twice until the silence is seen.
        """
        key = sender.envelope.key
        if key is None or not key.processes:
            return []
        if self._registry.with_key(key, sender.incarnation, role, number) < key.processes:
            return []
        if self.phase is not Phase.RUNNING:
            return [MembershipReply("stop", self.reason or "")]
        words = f"its key {key.name} is for at most {key.processes} processes, which are there"
        self.report.event_once(key.name, words, f"a process waits: {words}")
        return [MembershipReply("wait", words)]

    def _difference(self, member: Member, hello: Hello) -> str | None:
        """Why a process cannot take part: it differs from the run. None if it does not."""
        spaces = {**self._registry.spaces_for(member), **spaces_in(self._digests)}
        run = self._digests | spaces
        if not ROLES[hello.role].needs_environment:
            run = {key: digest for key, digest in run.items() if key not in spaces}
        differs = differing(hello.digests, run)
        if not differs:
            return None
        words = ", ".join(differs)
        if hello.forced:
            forced = f"{member.name} takes part by --force, although it differs in {words}"
            self.report.event_once(member.incarnation, "forced", forced)
            return None
        return (
            f"it differs from the run in {words}; start it with the run's own configuration "
            "(its config.yaml) and environment, or with --force"
        )

    def _heartbeat(self, heartbeat: Heartbeat, sender: _Sender) -> list[Message]:
        incarnation, now = sender.incarnation, sender.now
        member = self._registry.heard(incarnation, self._active_clock.seconds)
        if member is None:
            return [MembershipReply("hello", "unknown incarnation: say hello")]
        answers: list[Message] = [HeartbeatReply(self._registry.revision)]
        fitting = without_too_much(heartbeat)
        if fitting is not heartbeat:
            self.report.event_once(
                incarnation,
                "too much",
                f"{member.name} reports too much: at most {MOST_GAUGES} gauges and "
                f"{MOST_LABELS} labels of {MOST_LABEL_BYTES} bytes are allowed",
            )
        for figure, what in _SAID_REFUSALS.items():
            if fitting.gauges.get(figure):
                words = f"{member.name} refuses {what}; see {figure} in the metrics, and its log"
                self.report.event_once(incarnation, figure, words)
        if (fault := self._claims.fault(incarnation, fitting)) is None:
            self._lines.take(member, fitting, now, self._wall(now))
            if self._judge is not None and member.role == EVALUATOR.name:
                time_s = self._metrics.time_s(self._wall(now))
                self._judge.take(incarnation, fitting, time_s)
            if self._judge is not None and member.role == TRAINER.name and member.number == 0:
                self._judge.take_saved(member.generation, fitting.gauges.get("best_return"))
        else:
            self.refused += 1
            words = f"{member.name} reports implausible values: {fault}"
            self.report.event_once(incarnation, "cannot be", words)
            answers.append(ErrorReply("bad_heartbeat", fault))
        if heartbeat.final:
            self.report.left(member)
            self._leave(member, keep_metrics=member.role == TRAINER.name)
        return answers

    def _acknowledge(self, answer: DirectiveAck, sender: _Sender) -> list[Message]:
        incarnation = sender.incarnation
        refused = bool(answer.refusal)
        first = self._channel.acknowledge(incarnation, answer.id, refused=refused)
        if first and refused and (member := self._registry.get(incarnation)) is not None:
            words = f"{member.name} refuses directive {answer.id}: {answer.refusal}"
            self.report.event(printable(words))
            if (given := self._channel.withdraw(answer.id)) is not None:
                action = Action("", type(given).__name__, given.values())
                self._on_action(action, printable(answer.refusal)[:MOST_EVENT])
        return []

    def _obey(self, directive: DirectiveMessage, sender: _Sender) -> list[Message]:
        """The supervisor alone ends the run; other directives are refused."""

        def end(stop: StopRun) -> None:
            if self._supervisor is None or sender.incarnation != self._supervisor.incarnation:
                raise ValueError("only the supervisor, first to ask for the status, ends the run")
            self.stop(stop.reason, sender.now)

        answer = obey(directive, {StopRun: end})
        self.refused += bool(answer.refusal)
        return [answer]

    def _rank_of(self, by: str, directive: Directive) -> int | None:
        """The rank of an earlier monitor's directive; None if it cannot be in force any more."""
        if by != USER:
            return self._plugins.rank_of(by, directive)
        return None if self._plugins.refusal(directive) else USER_RANK

    def _act(self, action: Action, sender: _Sender) -> list[Message]:
        """Put a user's action in force, if it has the key and the run allows it."""
        try:
            directive = self._actions.directive(action, self._receivers())
            if self.phase is not Phase.RUNNING:
                raise ValueError(f"the run ends already: {self.reason}")
        except ValueError as error:
            self.refused += 1
            return [ActionReply(printable(str(error))[:MOST_EVENT])]
        words = ", ".join(
            f"{name} {value:g}" for name, value in action.values.items() if name != "reason"
        )
        self.report.event(f"the user's action: {action.kind} {words}".rstrip())
        self._on_action(action, "")
        if isinstance(directive.payload, StopRun):
            self.stop(directive.payload.reason, sender.now)
        else:
            self._channel.meet(self._receivers())  # one may have come just now
            self._channel.issue(directive, by=USER, rank=USER_RANK)
        return [ActionReply()]

    def _tell_status(self, request: StatusRequest, sender: _Sender) -> list[Message]:
        if not request.supervises:
            told = self.status() | self._told_users()
            return [Status(status_text(told | {"answers": sender.envelope.sequence}))]
        before = self._supervisor
        if before is None or before.incarnation == sender.incarnation:  # a second one waits
            self._is_watched = before is not None
            self._supervisor = Member(
                *("supervisor", 0, sender.incarnation, sender.routing_id, {}),
                heard_at=self._active_clock.seconds,
            )
        return [Status(status_text(self.status() | {"answers": sender.envelope.sequence}))]

    def _told_users(self) -> dict[str, Any]:
        """What only users are told: what they may do, and what they have set."""
        return {
            "actions": self._actions.refusals(self._receivers()),
            "set": self._channel.of_user(),
        }

    def _leave(self, member: Member, *, keep_metrics: bool = False) -> None:
        self._registry.leave(member.incarnation)
        self._claims.forget(member.incarnation)
        if not keep_metrics:
            self._metrics.role_gone(member.incarnation)

    def _told(self, member: Member) -> list[Message]:
        """What a member is told of the others; one that serves, of the keys before."""
        keys = [self._keys] if self._keys is not None and member.endpoints else []
        return [*keys, self._peers()]

    def _peers(self) -> Peers:
        peers = [
            Peer(m.role, m.name, m.incarnation, dict(m.endpoints), m.generation, m.server_key)
            for m in self._registry.members
            if m.endpoints
        ]
        return Peers(self._registry.revision, peers, list(self._registry.revoked))

    def _receivers(self) -> list[Member]:
        supervisor, silent_after_s = self._supervisor, self._registry.silent_after_s
        if supervisor and self._active_clock.seconds - supervisor.heard_at > silent_after_s:
            self._supervisor = supervisor = None
        return [*self._registry.members, *([supervisor] if supervisor else [])]

    def _ask_plugins(self, now: float) -> None:
        if not self._plugins:
            return
        seen = self._lines.indicators(self._registry.members, now, self._wall(now))
        for rank, name, directive in self._plugins.observe(seen):
            if isinstance(directive.payload, Note):
                self.report.note(directive.payload.text[:MOST_EVENT])
            elif isinstance(directive.payload, StopRun):
                self.stop(directive.payload.reason, now)
            else:
                self._channel.issue(directive, by=name, rank=rank)

    def _offer_best(self) -> None:
        """Tell the trainer the mean of 100 returns if it is above the best checkpoint's."""
        self._best_due = False
        if not self._offers_best:
            return
        mean, best = self._metrics.mean_of_100, self._metrics.best_return
        if mean is not None and (best is None or mean > best):
            cause = {"return_mean_100": mean, "best_return": best}
            offer = Directive(_FIRST_TRAINER, SaveBest(mean), cause, once=True)
            self._channel.issue(offer, by="monitor")

    def _end(self, now: float) -> None:
        # A role that misses its stop works for ever, unless a supervisor ends it; one that is busy
        # answers late, and one that is silent for too long is no member.
        in_haste = self._in_haste or (self._supervisor is not None and self._is_watched)
        within_s = GOODBYE_WITHIN_S if in_haste else self._registry.silent_after_s
        before = self.phase
        phase = self._ending.advance(self._registry.members, now, within_s=within_s)
        if before is Phase.STOPPING_ACTORS and phase is Phase.STOPPING_ALL:
            # before the trainer stops: its last checkpoint may be the best
            self._offer_best()
        first = [spec.name for spec in ROLES.values() if spec.stops_first]
        for to in {Phase.STOPPING_ACTORS: first, Phase.STOPPING_ALL: ["all"]}.get(phase, []):
            self._channel.issue(Directive(to, StopRole(self.reason or "")), by="monitor")


_TAKEN: dict[type[Message], Callable[[MonitorState, Any, _Sender], list[Message]]] = {
    NumberRequest: MonitorState._number,
    Hello: MonitorState._hello,
    Heartbeat: MonitorState._heartbeat,
    DirectiveAck: MonitorState._acknowledge,
    DirectiveMessage: MonitorState._obey,
    Action: MonitorState._act,
    StatusRequest: MonitorState._tell_status,
}
