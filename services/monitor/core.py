"""The monitor's state and its steps: events in, messages out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aclearn.control import Directive, Note, SaveBest, StopCondition, StopRole, StopRun
from aclearn.metrics import MetricsAggregator
from aclearn.metrics.indicators import IndicatorSet
from aclearn.metrics.names import POLICIES
from aclearn.metrics.policies import of_policies
from aclearn.telemetry import ActiveClock
from aclearn.wire import (
    Action,
    AllowedKey,
    DirectiveAck,
    DirectiveMessage,
    Envelope,
    ErrorReply,
    Heartbeat,
    HeartbeatReply,
    Hello,
    MembershipReply,
    Message,
    NumberRequest,
    StatusRequest,
)
from services.monitor.actions import Actions
from services.monitor.directive_channel import USER, USER_RANK, DirectiveChannel
from services.monitor.ending import GOODBYE_WITHIN_S, Ending, Phase
from services.monitor.heartbeats import Heartbeats
from services.monitor.judge import Judge
from services.monitor.lines import Lines
from services.monitor.membership import Membership
from services.monitor.plugins import Plugins
from services.monitor.registry import OutgoingMessage, Registry, Sender
from services.monitor.status_report import MOST_EVENT, StatusReport
from services.monitor.users import Users
from services.roles import EVALUATOR, MONITOR, ROLES, TRAINER

#: A longer time without a step is a suspended monitor, not silent members. It is a share of
#: `silent_after_s`; a slow disk may cause shorter ones.
_AWAY_SHARE = 0.25
#: Least seconds between two calls of the plug-ins.
_OBSERVE_EVERY_S = 0.1
#: The rank that saves.
_FIRST_TRAINER = f"{TRAINER.name}-0"
_ONE_EACH: Mapping[str, int] = {MONITOR.name: 1, TRAINER.name: 1}


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
        self._registry, self._metrics, self._goal = registry, metrics, goal
        self._plugins = plugins
        self._channel, self._ending = DirectiveChannel(), Ending()
        self._channel.restore(directives or {}, self._rank_of)
        self.report = StatusReport()
        self._observed_at = float("-inf")
        self._in_haste = False
        self._active_clock = ActiveClock(_AWAY_SHARE * registry.silent_after_s)
        self.not_allowed = 0
        self._lines = Lines(
            metrics,
            plugins,
            indicators or IndicatorSet(),
            self._figures,
            expected or {},
            frames_per_step=frames_per_step,
            judged=judged,
        )
        self._heartbeats = Heartbeats(
            self._lines, metrics, self.report, wall=self._wall, judge=judge, policies=policies
        )
        self._membership = Membership(
            registry,
            self.report,
            self._active_clock,
            self._ending,
            digests=dict(digests or {}),
            fixed={**_ONE_EACH, **(fixed or {})},
            numbers_from=numbers_from,
            on_left=self._heartbeats.forget,
        )
        self._users = Users(
            registry,
            self._channel,
            self.report,
            self._active_clock,
            self._ending,
            Actions(actions_key, plugins.check_action, least_actors=plugins.least_actors),
            status=self.status,
            stop=self.stop,
            on_action=on_action,
        )
        #: What is done with each kind of message.
        self._taken: dict[type[Message], Callable[[Any, Sender], list[Message]]] = {
            NumberRequest: self._membership.number,
            Hello: self._membership.hello,
            Heartbeat: self._heartbeat,
            DirectiveAck: self._users.acknowledge,
            DirectiveMessage: self._users.obey,
            Action: self._users.act,
            StatusRequest: self._users.tell_status,
        }
        self.line: dict[str, Any] = {}
        self._best_due = False

    @property
    def refused(self) -> int:
        """Number of heartbeats with implausible values, and of directives of others."""
        return self._heartbeats.refused + self._users.refused

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
        sender = Sender(routing_id, envelope, now)
        if (fault := self._membership.key_fault(sender)) is None:
            answers = self._taken[type(envelope.message)](envelope.message, sender)
        else:
            self.not_allowed += 1
            # by its key: a sender chooses its incarnation, and could fill the events with others
            key = "" if envelope.key is None else envelope.key.name
            self.report.event_once(key, fault, f"a process is refused: {fault}")
            answers = [MembershipReply("leave", fault)]
        return [OutgoingMessage(routing_id, answer) for answer in answers]

    def allow(self, keys: Sequence[AllowedKey]) -> None:
        """Tell the roles of a new list of keys; members whose key is not on it have to go."""
        self._membership.allow(keys)

    def observe_time(self, now: float) -> list[OutgoingMessage]:
        """Detect silence, ask the plug-ins and advance the ending; returns the due messages."""
        if away_s := self._active_clock.look(now):
            self.report.event(f"the monitor itself was suspended for {away_s:.1f} s")
        messages = self._membership.look()
        self._channel.meet(self._users.receivers())
        if self._judge is not None and self.phase is Phase.RUNNING:
            present = EVALUATOR.name in self._registry.roles
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

    def _heartbeat(self, heartbeat: Heartbeat, sender: Sender) -> list[Message]:
        member = self._registry.heard(sender.incarnation, self._active_clock.seconds)
        if member is None:
            return [MembershipReply("hello", "unknown incarnation: say hello")]
        answers: list[Message] = [
            HeartbeatReply(self._registry.revision, self._registry.every_s(member))
        ]
        if (fault := self._heartbeats.take(member, heartbeat, sender.now)) is not None:
            answers.append(ErrorReply("bad_heartbeat", fault))
        if heartbeat.final:
            self.report.left(member)
            self._membership.leave(member, keep_metrics=member.role == TRAINER.name)
        return answers

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

    def _rank_of(self, by: str, directive: Directive) -> int | None:
        """The rank of an earlier monitor's directive; None if it cannot be in force any more."""
        if by != USER:
            return self._plugins.rank_of(by, directive)
        return None if self._plugins.refusal(directive) else USER_RANK

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
        users = self._users
        in_haste = self._in_haste or (users.supervisor is not None and users.watched)
        within_s = GOODBYE_WITHIN_S if in_haste else self._registry.silent_after_s
        before = self.phase
        phase = self._ending.advance(self._registry.roles, now, within_s=within_s)
        if before is Phase.STOPPING_ACTORS and phase is Phase.STOPPING_ALL:
            # before the trainer stops: its last checkpoint may be the best
            self._offer_best()
        first = [spec.name for spec in ROLES.values() if spec.stops_first]
        for to in {Phase.STOPPING_ACTORS: first, Phase.STOPPING_ALL: ["all"]}.get(phase, []):
            self._channel.issue(Directive(to, StopRole(self.reason or "")), by="monitor")
