"""A role's client of the monitor: hello, heartbeats, directives."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import TypeVar

from aclearn.control.directives import Obeyed, StopRole, obey
from aclearn.launch import EXIT_GIVE_UP, StopFlag
from aclearn.telemetry import WaitMeter
from aclearn.types import EpisodeCohort, bounded_cohorts
from aclearn.wire import (
    AllowedKey,
    AllowedKeys,
    Client,
    DirectiveAck,
    DirectiveMessage,
    ErrorReply,
    Heartbeat,
    HeartbeatReply,
    Hello,
    MembershipReply,
    Message,
    Peer,
    Peers,
    PolicyNumbers,
)
from services.role.health import WAITS_FOR_MONITOR, HealthFile, missing_role
from services.role.requests import Requests, RetryPolicy, say_refusal
from services.roles import MONITOR, TRAINER
from services.wiring import GROUP

_LOGGER = logging.getLogger(__name__)

#: Requests to a monitor are repeated every half a second.
ASKING = RetryPolicy(answer_within_s=0.5, retry_first_s=0.5, retry_most_s=0.5)

_HELLO = "hello"
#: Seconds without an answer before a warning; it is logged once until the next answer.
_SAY_UNANSWERED_AFTER_S = 5.0

#: Seconds in which nothing could be sent before the connection is made anew: libzmq makes none
#: after bytes that are no message.
_RENEW_AFTER_S = 5.0

#: Unanswered heartbeats after which the monitor counts as gone.
_HEARTBEATS_UNANSWERED = 3

#: Seconds for the last heartbeat to leave the socket.
_GOODBYE_LINGER_S = 1.0

#: Most episodes in a heartbeat: a message holds no more, and means are of 100.
MOST_EPISODES = 1000

_NumbersT = TypeVar("_NumbersT", Heartbeat, PolicyNumbers)


def exit_status(stop: StopFlag, *, run_is_over: bool = False, refused: bool = False) -> int:
    """The status of a role that ended in order.

    0 only if the monitor ended the run: any other status means that the run continues.
    `EXIT_GIVE_UP` if it refused this process: it would refuse the next one.
    """
    if run_is_over:
        return 0
    return EXIT_GIVE_UP if refused else stop.exit_status


class NumberTaken(Exception):
    """Another process has this one's number: ask for another."""


class Sender:
    """Sends messages, and connects again if none could be sent for five seconds."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._sent_at = clock()

    def send(self, message: Message, timeout_s: float = 0.0) -> bool:
        """Whether the message was sent, waiting up to `timeout_s`."""
        sent, now = self._client.send(message, timeout_s=timeout_s), self._clock()
        if sent:
            self._sent_at = now
        elif now - self._sent_at > _RENEW_AFTER_S:
            self._sent_at = now
            self._client.transport.renew()
        return sent


class UnansweredWarning:
    """Warns once when the monitor has not answered for five seconds."""

    def __init__(self) -> None:
        self._due_at: float | None = None

    def look(self, now: float) -> None:
        """Warn when it is time; the first call is at the first request."""
        if self._due_at is None:
            self._due_at = now + _SAY_UNANSWERED_AFTER_S
        if now >= self._due_at:
            self.answered()
            _LOGGER.warning(
                "event=monitor_does_not_answer after_s=%g detail='is it running, at the address of "
                "--monitor, with the same run.name and the same keys (network.keys_dir)?'",
                _SAY_UNANSWERED_AFTER_S,
            )

    def answered(self) -> None:
        """Stop the warning."""
        self._due_at = float("inf")


class _UnansweredEpisodes:
    """The episodes of one policy that no answered heartbeat has carried.

    The counter `episodes` has them already, so that they must not be lost.

    Args:
        most: newest ones to keep.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        #: Return and policy of each, and cohorts: of no heartbeat, and of unanswered ones.
        self._unsent: list[tuple[float, str]] = []
        self._sent: list[tuple[float, str]] = []
        self._unsent_cohorts: list[EpisodeCohort] = []
        self._sent_cohorts: list[EpisodeCohort] = []

    def joined(self, made: _NumbersT) -> _NumbersT:
        """The numbers with the unsent episodes before their own, as far as a message holds them."""
        returns, policies = made.episode_returns, made.episode_policies or repeat("")
        self._unsent += zip(returns, policies, strict=False)
        self._unsent = self._unsent[-self._most :]
        share = self._most / MOST_EPISODES
        self._unsent_cohorts = bounded_cohorts([*self._unsent_cohorts, *made.cohorts], share)
        return replace(
            made,
            cohorts=self._unsent_cohorts,
            episode_returns=[return_ for return_, _ in self._unsent],
            episode_policies=[policy for _, policy in self._unsent],
        )

    def tried(self, *, sent: bool) -> None:
        """The heartbeat with the joined numbers was sent or not."""
        if sent:
            self._sent = [*self._sent, *self._unsent][-self._most :]
            self._sent_cohorts = bounded_cohorts([*self._sent_cohorts, *self._unsent_cohorts])
            self._unsent, self._unsent_cohorts = [], []

    def answered(self) -> None:
        """The monitor has all that were sent."""
        self._sent, self._sent_cohorts = [], []

    def unknown(self) -> None:
        """The monitor did not use them: they are to be sent again."""
        self._unsent = [*self._sent, *self._unsent]
        self._unsent_cohorts = [*self._sent_cohorts, *self._unsent_cohorts]
        self._sent, self._sent_cohorts = [], []


class MonitorClient:
    """A role's client of the monitor: sends hellos and heartbeats, receives peers and directives.

    Call `tick` between any two steps of the role; it never blocks. Without a monitor the role
    continues with the peers that it knows.

    Args:
        client: connected to the monitor; owned by the thread that ticks.
        hello: the first message, repeated when the monitor does not know this incarnation.
        heartbeat_every_s: least time between two heartbeats; the monitor may tell a longer one.
        on: directives that the role obeys, beside `StopRole`; called by `tick`.
        postpones: leave others unanswered, for the client that follows this one.
        stop: set by signals, which end this process alone.
        health: receives the reason to wait.
        number_given: the monitor gave the number in the name; `tick` raises `NumberTaken` if
            another process has taken it before the first hello.
        watch_key: looks at this process's key; true if it has connected the client again.
        allow: takes the keys that may connect to this process.
    """

    def __init__(
        self,
        client: Client,
        *,
        hello: Hello,
        heartbeat: Callable[[], Heartbeat],
        heartbeat_every_s: float,
        on: Obeyed | None = None,
        postpones: bool = False,
        stop: StopFlag | None = None,
        health: HealthFile | None = None,
        number_given: bool = False,
        watch_key: Callable[[], bool] = lambda: False,
        allow: Callable[[Sequence[AllowedKey]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._hello, self._make_heartbeat = client, hello, heartbeat
        self._stop_flag = StopFlag() if stop is None else stop
        self._heartbeat_every_s, self._health, self._clock = heartbeat_every_s, health, clock
        self._number_given, self._postpones = number_given, postpones
        self._watch_key, self._allow = watch_key, allow
        self._on: Obeyed = {StopRole: self._end_run} | dict(on or {})
        #: By kind of directive, the monitor that gave the newest one, and the answer.
        self._answered: dict[str, tuple[str, DirectiveAck]] = {}
        self._answered_at = float("-inf")
        self._send = Sender(client, clock).send
        self._requests = Requests[str](ASKING)
        self._next_heartbeat = self._heartbeat_at = clock()
        self._told_s = heartbeat_every_s
        self._say_hello()
        self._unanswered = UnansweredWarning()
        self._waits = False
        self._refusals: set[str] = set()
        #: By policy, "" where the heartbeat has the episodes of all.
        self._episodes: dict[str, _UnansweredEpisodes] = {}
        self._left = False
        self.peers: tuple[Peer, ...] = ()
        self.revoked: frozenset[str] = frozenset()
        self.revision = -1
        self.stop_reason: str | None = None
        #: Whether the monitor ended the run, not this process alone.
        self.run_is_over = False
        self._refused = False

    def tick(self) -> None:
        """Handle the monitor's messages and send due ones.

        Raises:
            NumberTaken: another process has this one's number.
        """
        while (envelope := self._client.receive(0.0)) is not None:
            self._answered_at = self._clock()
            if isinstance(message := envelope.message, DirectiveMessage):
                if (answer := self._obey(message, envelope.incarnation)) is not None:
                    self._client.send(answer)
            else:
                self._take(message)
        if self._watch_key():
            self._say_hello()  # what was on its way may be lost
        now = self._clock()
        for key, hello in self._requests.due(now):
            self._requests.tried(key, now, sent=self._send(hello))
        if _HELLO in self._requests:
            self._unanswered.look(now)
        elif now >= self._next_heartbeat:
            self._heartbeat_at = now
            sent = self._send_heartbeat()
            # one that could not leave is tried again soon, for a monitor that was started again
            self._next_heartbeat = now + (self._told_s if sent else self._heartbeat_every_s)
        if self._health is not None:
            self._health.say(self._missing)

    @property
    def generation(self) -> int | None:
        """The generation of the newest trainer; None before the first one that takes unrolls."""
        trainers = (peer for peer in self.peers if peer.role == TRAINER.name)
        # one whose group is not formed yet has none
        return max((p.generation for p in trainers if GROUP not in p.endpoints), default=None)

    @property
    def channel(self) -> Client:
        """For pollers."""
        return self._client

    def goes_on(self, meter: WaitMeter) -> bool:
        """`tick`; returns whether the role shall continue: no monitor or signal stopped it."""
        with meter.part("wire"):
            self.tick()
        return self.stop_reason is None and not self._stop_flag

    @property
    def exit_status(self) -> int:
        """The status of a role that ended in order; see `exit_status`."""
        return exit_status(self._stop_flag, run_is_over=self.run_is_over, refused=self._refused)

    def hasten(self) -> None:
        """Send the next heartbeat at the next `tick`: the monitor waits for what it says."""
        self._next_heartbeat = self._heartbeat_at

    def leave(self) -> None:
        """Send the last heartbeat and close; once."""
        if not self._left:
            self._left = True
            self._send_heartbeat(final=True, timeout_s=_GOODBYE_LINGER_S)
            self._client.close(linger_s=_GOODBYE_LINGER_S)

    def _obey(self, message: DirectiveMessage, monitor: str) -> DirectiveAck | None:
        """Obey a directive once, although it comes again until the answer has arrived."""
        if self._postpones and message.kind not in {kind.__name__ for kind in self._on}:
            return None
        by, answer = self._answered.get(message.kind, ("", None))
        if answer is None or (by, answer.id) != (monitor, message.id):
            answer = obey(message, self._on)
            self._answered[message.kind] = (monitor, answer)
        return answer

    def _end_run(self, directive: StopRole) -> None:
        self.run_is_over = True
        self._stop(directive.reason)

    def _missing(self) -> str:
        """The missing requirement, as text; empty if none is missing."""
        assert self._health is not None
        silence_s = self._clock() - self._answered_at
        if silence_s > max(_SAY_UNANSWERED_AFTER_S, _HEARTBEATS_UNANSWERED * self._told_s):
            return WAITS_FOR_MONITOR
        return missing_role(self._health.needs, {peer.role for peer in self.peers})

    def _say_hello(self) -> None:
        self._requests.add(_HELLO, self._hello, self._clock())

    def _stop(self, reason: str) -> None:
        if self.stop_reason is None:
            _LOGGER.info("event=told_to_stop reason=%r", reason)
        self.stop_reason = reason or "stop"

    def _wait(self, reason: str) -> None:
        self._unanswered.answered()
        if self.revision >= 0:
            self._stop(reason)  # the name was this process's, and now belongs to another
        elif self._number_given:
            raise NumberTaken(reason)
        elif not self._waits:
            self._waits = True
            _LOGGER.warning("event=name_is_taken reason=%r", reason)

    def _send_heartbeat(self, *, final: bool = False, timeout_s: float = 0.0) -> bool:
        made = self._make_heartbeat()
        parts = dict(made.policies)
        numbers = {name: self._with_unsent(name, each, len(parts)) for name, each in parts.items()}
        if not parts:
            made = self._with_unsent("", made, 1)
        heartbeat = replace(made, policies=numbers, final=final)
        sent = self._send(heartbeat, timeout_s)
        for episodes in self._episodes.values():
            episodes.tried(sent=sent)
        return sent

    def _with_unsent(self, policy: str, made: _NumbersT, policies: int) -> _NumbersT:
        """The numbers, with the episodes that no heartbeat has carried before them."""
        episodes = self._episodes.setdefault(policy, _UnansweredEpisodes(MOST_EPISODES // policies))
        return episodes.joined(made)

    def _take(self, message: Message) -> None:
        if isinstance(message, Peers):
            self._requests.answered(_HELLO, self._clock())
            self._unanswered.answered()
            self.peers, self.revision, self._waits = tuple(message.peers), message.revision, False
            self.revoked = frozenset(message.revoked)
        elif isinstance(message, AllowedKeys):
            self._allow(message.keys)
        elif isinstance(message, HeartbeatReply):
            self._told_s = max(self._heartbeat_every_s, message.every_s)
            if self._next_heartbeat > self._heartbeat_at:  # else it was hastened since
                self._next_heartbeat = self._heartbeat_at + self._told_s
            for episodes in self._episodes.values():
                episodes.answered()
            if message.revision != self.revision and _HELLO not in self._requests:
                self._say_hello()  # requests the newer list of peers
        elif isinstance(message, MembershipReply):
            if message.action in ("stop", "leave"):
                self.run_is_over |= message.action == "stop"
                if message.action == "leave" and self.revision < 0:
                    self._refused = True
                    _LOGGER.error("event=refused_by_the_run reason=%r", message.reason)
                self._stop(message.reason)
            elif message.action == "wait":
                self._wait(message.reason)
            elif message.action == "full":
                self._unanswered.answered()
                if not self._waits:
                    self._waits = True
                    _LOGGER.warning("event=waits_for_a_place reason=%r", message.reason)
            elif message.action == "hello":
                # a monitor that does not know this process did not use its heartbeat
                for episodes in self._episodes.values():
                    episodes.unknown()
                self._say_hello()
        elif isinstance(message, ErrorReply):
            say_refusal(self._refusals, MONITOR.name, message)
        else:
            _LOGGER.warning("event=unexpected_message kind=%s", type(message).__name__)
