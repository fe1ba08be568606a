"""What users and the supervisor of a run are told, and what they may tell it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aclearn.control import StopRun, obey
from aclearn.metrics.formatting import printable
from aclearn.telemetry import ActiveClock
from aclearn.wire import (
    Action,
    ActionReply,
    DirectiveAck,
    DirectiveMessage,
    Message,
    Status,
    StatusRequest,
)
from services.monitor.actions import Actions
from services.monitor.directive_channel import USER, USER_RANK, DirectiveChannel
from services.monitor.ending import Ending, Phase
from services.monitor.registry import Member, Registry, Sender
from services.monitor.status_report import MOST_EVENT, StatusReport, status_text


class Users:
    """The supervisor, the users, and the directives that they give. Pure: time is an argument.

    Args:
        clock: by which the supervisor's silence is measured.
        status: the run's status, as it is at the call.
        stop: ends the run, for a reason, at a time.
        on_action: called with each action that is in force, and ""; again with its receiver's
            refusal, which ends that.

    Attributes:
        refused: number of directives and actions that were refused.
        supervisor: the first process that asks for the status, until it is silent; directives
            reach it.
        watched: whether it has asked again and again; a container that gives up has asked once
            before the run ends.
    """

    def __init__(
        self,
        registry: Registry,
        channel: DirectiveChannel,
        report: StatusReport,
        clock: ActiveClock,
        ending: Ending,
        actions: Actions,
        *,
        status: Callable[[], dict[str, Any]],
        stop: Callable[[str, float], object],
        on_action: Callable[[Action, str], object],
    ) -> None:
        self._registry, self._channel, self._report = registry, channel, report
        self._clock, self._ending, self._actions = clock, ending, actions
        self._status, self._stop, self._on_action = status, stop, on_action
        self.supervisor: Member | None = None
        self._heard_at = 0.0
        self.watched = False
        self.refused = 0
        #: The supervisor and the members that `_receivers` has.
        self._of: tuple[Member | None, tuple[Member, ...]] = None, ()
        self._receivers: tuple[Member, ...] = ()

    def receivers(self) -> tuple[Member, ...]:
        """Who may receive directives: the members, and the supervisor.

        It is the same object until one of them changes.
        """
        supervisor, members = self.supervisor, self._registry.members
        silence_s = self._clock.seconds - self._heard_at
        if supervisor is not None and silence_s > self._registry.silent_after_s:
            self.supervisor = supervisor = None
        if self._of[0] is not supervisor or self._of[1] is not members:
            self._of = supervisor, members
            self._receivers = (*members, *([] if supervisor is None else [supervisor]))
        return self._receivers

    def acknowledge(self, answer: DirectiveAck, sender: Sender) -> list[Message]:
        """Take a receiver's answer to a directive; a user's that it refuses is withdrawn."""
        incarnation = sender.incarnation
        refused = bool(answer.refusal)
        first = self._channel.acknowledge(incarnation, answer.id, refused=refused)
        if first and refused and (member := self._registry.get(incarnation)) is not None:
            words = f"{member.name} refuses directive {answer.id}: {answer.refusal}"
            self._report.event(printable(words))
            if (given := self._channel.withdraw(answer.id)) is not None:
                action = Action("", type(given).__name__, given.values())
                self._on_action(action, printable(answer.refusal)[:MOST_EVENT])
        return []

    def obey(self, directive: DirectiveMessage, sender: Sender) -> list[Message]:
        """The supervisor alone ends the run; other directives are refused."""

        def end(stop: StopRun) -> None:
            if self._ending.phase is not Phase.RUNNING:
                return  # it ends already: several containers may give up
            if self.supervisor is None or sender.incarnation != self.supervisor.incarnation:
                raise ValueError("only the supervisor, first to ask for the status, ends the run")
            self._stop(stop.reason, sender.now)

        answer = obey(directive, {StopRun: end})
        self.refused += bool(answer.refusal)
        return [answer]

    def act(self, action: Action, sender: Sender) -> list[Message]:
        """Put a user's action in force, if it has the key and the run allows it."""
        try:
            directive = self._actions.directive(action, self.receivers())
            if self._ending.phase is not Phase.RUNNING:
                raise ValueError(f"the run ends already: {self._ending.reason}")
        except ValueError as error:
            self.refused += 1
            return [ActionReply(printable(str(error))[:MOST_EVENT])]
        words = ", ".join(
            f"{name} {value:g}" for name, value in action.values.items() if name != "reason"
        )
        self._report.event(f"the user's action: {action.kind} {words}".rstrip())
        self._on_action(action, "")
        if isinstance(directive.payload, StopRun):
            self._stop(directive.payload.reason, sender.now)
        else:
            self._channel.meet(self.receivers())  # one may have come just now
            self._channel.issue(directive, by=USER, rank=USER_RANK)
        return [ActionReply()]

    def tell_status(self, request: StatusRequest, sender: Sender) -> list[Message]:
        """The run's status; who supervises and asks first is the supervisor."""
        told: Mapping[str, Any] = {"answers": sender.envelope.sequence}
        if not request.supervises:
            return [Status(status_text({**self._status(), **self._told_users(), **told}))]
        before = self.supervisor
        if before is None or before.incarnation == sender.incarnation:  # a second one waits
            self._heard_at = self._clock.seconds
            # who gives up asks again until it is answered, while the run ends
            runs = self._ending.phase is Phase.RUNNING
            self.watched = before is not None and (runs or self.watched)
            now = Member("supervisor", 0, sender.incarnation, sender.routing_id, {})
            if now != before:
                self.supervisor = now
        return [Status(status_text({**self._status(), **told}))]

    def _told_users(self) -> dict[str, Any]:
        """What only users are told: what they may do, and what they have set."""
        return {
            "actions": self._actions.refusals(self.receivers()),
            "set": self._channel.of_user(),
        }
