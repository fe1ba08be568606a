"""The monitor's state and its pure steps: who is there, what is told to whom, how a run ends."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any

from aclearn.control import Directive, Note, StopCondition
from aclearn.metrics import MetricsAggregator
from aclearn.telemetry.active_clock import ActiveClock
from aclearn.wire import (
    DirectiveAck,
    Envelope,
    ErrorReply,
    Heartbeat,
    HeartbeatReply,
    Hello,
    MembershipReply,
    Number,
    NumberRequest,
    Peer,
    Peers,
    SaveBest,
    Status,
    StatusRequest,
    StopRole,
    StopRun,
)
from services.monitor.claims import (
    MOST_GAUGES,
    MOST_LABEL_BYTES,
    MOST_LABELS,
    HeartbeatClaims,
    hello_fault,
    number_fault,
    without_too_much,
)
from services.monitor.directive_channel import DirectiveChannel
from services.monitor.indicator_collector import IndicatorCollector
from services.monitor.outgoing_message import OutgoingMessage
from services.monitor.plugins import Plugins
from services.monitor.registry import Member, Registry
from services.roles import ROLES, TRAINER

_LOGGER = logging.getLogger(__name__)

#: Seconds for the actors, then for all others, to say goodbye when the run is over.
_GOODBYE_WITHIN_S = 3.0
#: The monitor looks every few hundredths of a second. Without a look it was stopped itself, or its
#: disk stood still; no more than such a share of the time in which somebody may be silent counts
#: then. Less is a slow disk, each second perhaps.
_AWAY_SHARE = 0.25
#: Most characters of an event, and most bytes of a status, which is one text of a message.
_MOST_EVENT, _MOST_STATUS_BYTES = 300, 48 * 1024
#: Least seconds between two looks of the plug-ins.
_OBSERVE_EVERY_S = 0.1


class Phase(Enum):
    """How far the end of the run has come."""

    RUNNING = "running"
    STOPPING_ACTORS = "stopping actors"
    STOPPING_ALL = "stopping"
    OVER = "over"


class MonitorState:
    """The monitor's state and its pure steps: events in, messages out.

    Args:
        registry: who is there.
        view: what the run does.
        goal: when it is over.
        plugins: decide from what the run does.
        expected: role → how many processes are configured.
        numbers_from: when the first number is handed out. A monitor that was started again hears
            first which numbers living processes have.
    """

    def __init__(
        self,
        registry: Registry,
        view: MetricsAggregator,
        goal: StopCondition,
        *,
        plugins: Plugins | None = None,
        expected: Mapping[str, int] | None = None,
        numbers_from: float = float("-inf"),
    ) -> None:
        self._registry, self._view, self._goal = registry, view, goal
        self._numbers_from = numbers_from
        self.phase = Phase.RUNNING
        self.reason: str | None = None
        self._phase_since = 0.0
        self._plugins = plugins or Plugins({})
        self._indicators = IndicatorCollector(expected or {})
        self._observed_at = float("-inf")
        self._channel = DirectiveChannel()
        #: Who asks for the status, as a receiver of directives.
        self._supervisor: Member | None = None
        self._told_revision = 0
        self._attended = ActiveClock(_AWAY_SHARE * registry.silent_after_s)
        self.events: deque[str] = deque(maxlen=50)
        self._silent: deque[tuple[str, int]] = deque(maxlen=128)
        self._silences = 0
        self._claims = HeartbeatClaims()
        #: Heartbeats that were refused, since what they claim cannot be.
        self.refused_heartbeats = 0
        # incarnations, and why, of whose excess or refusal an event tells already; the oldest is
        # forgotten
        self._told: deque[tuple[str, str]] = deque(maxlen=128)
        self._wait_share: dict[str, Any] = {}
        self.line: dict[str, Any] = {}
        self._best_due = False
        self._notes: deque[str] = deque(maxlen=50)
        self._noted = 0

    def take(self, address: bytes, envelope: Envelope, now: float) -> list[OutgoingMessage]:
        """Take one message; returns the answers."""
        message, sender = envelope.message, envelope.sender
        if isinstance(message, NumberRequest):
            return self._number(address, sender, message.role, now)
        if isinstance(message, Hello):
            return self._hello(address, sender, message, now)
        if isinstance(message, Heartbeat):
            return self._heartbeat(address, sender, message, now)
        if isinstance(message, StopRun):
            self.stop(message.reason, now)
            return []
        if isinstance(message, DirectiveAck):
            self._channel.acknowledge(sender, message.id)
        if isinstance(message, StatusRequest):
            self._supervisor = Member(
                "supervisor", 0, sender, address, {}, heard_at=self._attended.seconds
            )
            return [OutgoingMessage(address, Status(self._status_text(envelope.sequence)))]
        return []

    def observe_time(self, now: float) -> list[OutgoingMessage]:
        """What is due: silence is noticed, changes are told, the end goes on."""
        messages: list[OutgoingMessage] = []
        away_s = self._attended.look(now)
        if away_s:
            self._event(f"the monitor itself stood still for {away_s:.1f} s")
        for member in self._registry.take_out_silent(self._attended.seconds):
            self._leave(member, now)
            self._silent.append((member.name, member.pid))
            self._silences += 1
            self._event(f"{member.name} is silent")
        if self._registry.revision != self._told_revision:
            self._told_revision = self._registry.revision
            messages += [OutgoingMessage(m.address, self._peers()) for m in self._registry.members]
        self._channel.meet(self._receivers())
        if self._best_due:
            self._offer_best()
        if self.phase is Phase.RUNNING and not 0.0 <= now - self._observed_at < _OBSERVE_EVERY_S:
            self._observed_at = now
            self._ask_plugins(now)
        self._end(now)
        return messages + self._channel.messages(now)

    def _ask_plugins(self, now: float) -> None:
        if not self._plugins:
            return
        seen = self._indicators.look(self._registry.members, self.line, self._view.time_s(now))
        for rank, name, directive in self._plugins.observe(seen):
            if isinstance(directive.payload, Note):
                self.note(directive.payload.text)
            elif isinstance(directive.payload, StopRun):
                self.stop(directive.payload.reason, now)
            else:
                self._channel.issue(directive, by=name, rank=rank)

    def _receivers(self) -> list[Member]:
        supervisor, silent_after_s = self._supervisor, self._registry.silent_after_s
        if supervisor and self._attended.seconds - supervisor.heard_at > silent_after_s:
            self._supervisor = supervisor = None
        return [*self._registry.members, *([supervisor] if supervisor else [])]

    def make_line(self, now: float) -> dict[str, Any]:
        """The metrics line of this moment; notices when the run is over."""
        self.line = self._view.line(now)
        self._best_due = True
        reason = self._goal.observe(self.line, episodes_in_mean=self._view.returns_in_mean)
        self.line |= self._goal.fields() | self._channel.gauges()
        self._plugins.add_gauges(self.line)
        if self.phase is Phase.RUNNING:
            self._wait_share = self.line["wait_share"]
        else:
            # roles that have left keep the shares that they had while the run went on
            self.line["wait_share"] = self._wait_share | self.line["wait_share"]
        if reason is not None:
            self.stop(reason, now)
        return self.line

    def _offer_best(self) -> None:
        """Tell the trainer of the mean of 100 returns, where it is above its best checkpoint's."""
        self._best_due = False
        mean, best = self._view.mean_of_100, self._view.best_return
        if mean is not None and (best is None or mean > best):
            cause = {"return_mean_100": mean, "best_return": best}
            self._channel.issue(
                Directive(TRAINER.name, SaveBest(mean), cause, once=True), by="monitor"
            )

    def stop(self, reason: str, now: float) -> None:
        """End the run: actors first, so that nothing is produced that nobody will learn."""
        if self.phase is Phase.RUNNING:
            self.phase, self._phase_since = Phase.STOPPING_ACTORS, now
            self.reason = reason[:_MOST_EVENT]
            self._event(f"run ends: {reason}")

    def leave(self, reason: str) -> None:
        """End the monitor alone: the others go on, and the next monitor finds them."""
        self.phase, self.reason = Phase.OVER, reason
        self._event(f"the monitor leaves: {reason}")

    def status(self) -> dict[str, Any]:
        """What the console shows."""
        return {
            "phase": self.phase.value,
            "reason": self.reason,
            "line": self.line,
            "members": [m.name for m in self._registry.members],
            "pids": self._pids(),
            "events": list(self.events)[-10:],
            "silent": list(self._silent),
            "silences": self._silences,
            "notes": list(self._notes),
            "noted": self._noted,
        }

    def _pids(self) -> dict[str, dict[str, int]]:
        """Host → name → number of the process that has the name."""
        hosts: dict[str, dict[str, int]] = {}
        for member in self._registry.members:
            hosts.setdefault(member.host, {})[member.name] = member.pid
        return hosts

    def _status_text(self, answers: int) -> str:
        status = self.status() | {"answers": answers}
        text = json.dumps(status)  # in ASCII
        if len(text) <= _MOST_STATUS_BYTES:
            return text
        # what the parent acts on comes before what it shows
        status |= {"line": {}, "events": [], "notes": [], "pids": {}}
        room = _MOST_STATUS_BYTES - len(json.dumps(status))
        notes: deque[str] = deque()
        for note in reversed(self._notes):  # the newest: the parent takes older ones for shown
            room -= len(json.dumps(note)) + len(", ")
            if room < 0:
                break
            notes.appendleft(note)
        return json.dumps(status | {"notes": list(notes)})

    def note(self, text: str) -> None:
        """Say something to the person who watches the run."""
        self._notes.append(text)
        self._noted += 1
        self.events.append(text)

    def _number(self, address: bytes, sender: str, role: str, now: float) -> list[OutgoingMessage]:
        if (fault := number_fault(role)) is not None:
            return [OutgoingMessage(address, MembershipReply("leave", fault))]
        if now < self._numbers_from:
            return []  # it asks again
        number = self._registry.hand_out(sender, role, self._attended.seconds)
        return [OutgoingMessage(address, Number(number))]

    def _hello(
        self, address: bytes, sender: str, hello: Hello, now: float
    ) -> list[OutgoingMessage]:
        member = Member(
            hello.role,
            hello.number,
            sender,
            address,
            dict(hello.endpoints),
            heard_at=self._attended.seconds,
            host=hello.host,
            pid=hello.pid,
        )
        refusal = hello_fault(sender, hello) or self._registry.refusal(member)
        if refusal is not None:
            who = f"{member.name} at {hello.host} (process {hello.pid})"
            self._tell_once(sender, refusal, f"{who} is refused: {refusal}")
            return [OutgoingMessage(address, MembershipReply("leave", refusal))]
        if (holder := self._registry.taken_by(member)) is not None:
            if self.phase is not Phase.RUNNING:
                return [OutgoingMessage(address, MembershipReply("stop", self.reason or ""))]
            return [OutgoingMessage(address, MembershipReply("wait", holder))]
        if hello.note and self._registry.get(sender) is None:
            self._event(f"{member.name} comes back: {hello.note}")
        if (replaced := self._registry.hello(member)) is not None:
            self._leave(replaced, now)
            self._event(f"{replaced.name} was started again")
        return [OutgoingMessage(address, self._peers())]

    def _heartbeat(
        self, address: bytes, sender: str, heartbeat: Heartbeat, now: float
    ) -> list[OutgoingMessage]:
        member = self._registry.get(sender)
        if member is None:
            return [
                OutgoingMessage(address, MembershipReply("hello", "the monitor does not know you"))
            ]
        self._registry.heard(sender, self._attended.seconds)
        messages = [OutgoingMessage(address, HeartbeatReply(self._registry.revision))]
        fitting = without_too_much(heartbeat)
        if fitting is not heartbeat:
            self._tell_once(
                sender,
                "too much",
                f"{member.name} reports too much: at most {MOST_GAUGES} gauges and "
                f"{MOST_LABELS} labels of {MOST_LABEL_BYTES} bytes are taken",
            )
        if (fault := self._claims.fault(sender, fitting)) is None:
            self._view.observe_heartbeat(member.role, member.name, sender, fitting, now)
            if self._plugins:
                self._indicators.take(member, fitting, self._view.time_s(now))
        else:
            self.refused_heartbeats += 1
            self._tell_once(sender, "cannot be", f"{member.name} reports what cannot be: {fault}")
            messages.append(OutgoingMessage(address, ErrorReply("bad_heartbeat", fault)))
        if heartbeat.final:
            self._leave(member, now, keep_view=member.role == TRAINER.name)
        return messages

    def _leave(self, member: Member, now: float, *, keep_view: bool = False) -> None:
        self._registry.leave(member.incarnation)
        self._claims.forget(member.incarnation)
        if not keep_view:
            self._view.role_gone(member.incarnation, now)

    def _tell_once(self, incarnation: str, reason: str, text: str) -> None:
        """An event for the first message of a process that there is this reason to speak of."""
        key = (incarnation[:MOST_LABEL_BYTES], reason)
        if key not in self._told:
            self._told.append(key)
            self._event(text)

    def _peers(self) -> Peers:
        peers = [
            Peer(m.role, m.name, m.incarnation, dict(m.endpoints))
            for m in self._registry.members
            if m.endpoints
        ]
        return Peers(self._registry.revision, peers)

    def _end(self, now: float) -> None:
        """Go on with the end: the actors first, then all others, none waited for too long."""
        late = now - self._phase_since > _GOODBYE_WITHIN_S
        members = self._registry.members
        if self.phase is Phase.STOPPING_ACTORS:
            if late or not any(ROLES[member.role].stops_first for member in members):
                self.phase, self._phase_since = Phase.STOPPING_ALL, now
                # before the trainer is told to stop: its last checkpoint may be the best
                self._offer_best()
                self._direct_to_stop("all")
            else:
                self._direct_to_stop("actor")
        elif self.phase is Phase.STOPPING_ALL and (late or not members):
            self.phase = Phase.OVER

    def _direct_to_stop(self, role: str) -> None:
        self._channel.issue(Directive(role, StopRole(self.reason or "")), by="monitor")

    def _event(self, text: str) -> None:
        text = text[:_MOST_EVENT]
        self.events.append(text)
        _LOGGER.info("event=run text=%r", text)
