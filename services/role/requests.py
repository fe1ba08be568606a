"""Unanswered requests: which to repeat, give up or send to another peer.

No socket; time is an argument.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Generic, TypeVar

from aclearn.wire import ErrorReply

_LOGGER = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class RetryPolicy:
    """When to repeat a request, and when to ask another peer. All times are in seconds.

    Attributes:
        answer_within_s: a request without an answer for this time is repeated.
        once: it is given up instead: no request is sent twice.
        in_order: the peer answers in order: an answer shows that those sent before are lost, which
            are repeated at once. So none is sent while an earlier one could not leave.
        silent_after_s: a peer that was silent for this time, while a request waits, is replaced by
            the next one. Where there is no other, the connection is made anew and everything
            repeated; the time doubles each time, for a peer that is slow or busy.
        reached_within_s: the same for a peer to which nothing could be sent.
        retry_first_s: pause after a request that could not be sent; it doubles with each attempt.
        retry_most_s: the longest such pause.
        most_failures: failed attempts in a row after which a request is given up.
        no_room_pause_s: pause after a peer refused a request because its queue was full.
    """

    answer_within_s: float
    once: bool = False
    in_order: bool = False
    silent_after_s: float = math.inf
    reached_within_s: float = math.inf
    retry_first_s: float = 0.0
    retry_most_s: float = 0.0
    most_failures: int | None = None
    no_room_pause_s: float = 0.5


@dataclass
class _Request:
    message: Any
    since: float  # since when the current peer could have answered
    due_at: float  # when it is sent, for the first time or again
    sent: bool = False
    failures: int = 0  # failed attempts to send, in a row
    sent_at: float = -math.inf


class Requests(Generic[Key]):
    """The unanswered requests of one client, by key."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._waiting: dict[Key, _Request] = {}
        self._heard_at = -math.inf
        self._silences = 0  # connections made anew since the peer was heard
        self._given_up_since = math.inf  # the first request since then that was given up
        self.repeated = 0
        self.given_up = 0

    @property
    def in_order(self) -> bool:
        """Whether none may overtake an earlier one."""
        return self._policy.in_order

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key, message: Any, now: float) -> None:
        """Add a request that is due at once; it replaces an older one of its key."""
        self._waiting[key] = _Request(message, since=now, due_at=now)

    def due(self, now: float) -> list[tuple[Key, Any]]:
        """The requests to send now; with `once`, those sent already are given up instead."""
        waiting: Iterable[tuple[Key, _Request]] = self._waiting.items()
        if self._policy.in_order:
            waiting = takewhile(lambda each: each[1].sent or now >= each[1].due_at, waiting)
        late = [(key, r) for key, r in waiting if now >= r.due_at]
        if self._policy.once:
            for key in [key for key, request in late if request.sent]:
                self._given_up_since = min(self._given_up_since, self._waiting.pop(key).since)
                self.given_up += 1
            late = [(key, request) for key, request in late if not request.sent]
        return [(key, request.message) for key, request in late]

    def tried(self, key: Key, now: float, *, sent: bool) -> None:
        """Note an attempt to send a request."""
        request, policy = self._waiting[key], self._policy
        if sent:
            self.repeated += request.sent
            request.sent, request.sent_at, request.failures = True, now, 0
            request.due_at = now + policy.answer_within_s
            if policy.once:
                request.message = None  # it may be large
        else:
            pause_s = policy.retry_first_s * 2.0 ** min(request.failures, 60)
            request.failures += 1
            request.due_at = now + min(pause_s, policy.retry_most_s)
            if request.failures == policy.most_failures:
                del self._waiting[key]
                self.given_up += 1

    def sent(self, key: Key) -> bool:
        """Whether the current peer may answer the request."""
        return key in self._waiting and self._waiting[key].sent

    def answered(self, key: Key, now: float) -> None:
        """Remove an answered request; unknown keys are ignored."""
        answered = self._waiting.pop(key, None)
        if answered is not None and self._policy.in_order:
            for request in self._waiting.values():
                if request.sent_at < answered.sent_at:
                    request.due_at = now

    def cancel(self, key: Key) -> bool:
        """Remove a request; returns as `sent`."""
        sent = self.sent(key)
        self._waiting.pop(key, None)
        return sent

    def heard(self, now: float) -> None:
        """Note a message of the peer."""
        self._heard_at, self._silences, self._given_up_since = now, 0, math.inf

    def no_room(self, now: float) -> None:
        """Repeat all requests after a pause: the peer's queue was full."""
        for request in self._waiting.values():
            request.due_at = min(request.due_at, now + self._policy.no_room_pause_s)

    def silent(self, now: float) -> bool:
        """Whether to ask another peer, or the same one over another connection."""
        if not self._waiting:
            return False
        first = min(request.since for request in self._waiting.values())
        since = max(self._heard_at, min(first, self._given_up_since))
        reached = any(request.sent for request in self._waiting.values())
        policy = self._policy
        limit_s = policy.silent_after_s if reached else policy.reached_within_s
        return now - since >= limit_s * 2.0**self._silences

    def moved(self, now: float, *, same_peer: bool = False) -> None:
        """Ask over another connection: all are due at once, except those to be sent once.

        Args:
            same_peer: it is one to the peer that was silent.
        """
        self._silences = self._silences + 1 if same_peer else 0
        self._given_up_since = math.inf
        if self._policy.once:
            self._waiting.clear()
        for key, request in self._waiting.items():
            self.repeated += request.sent
            self._waiting[key] = _Request(request.message, since=now, due_at=now)


def say_refusal(said: set[str], by: str, refusal: ErrorReply) -> None:
    """Log why a peer refused a message; `said` holds the reasons already logged."""
    if refusal.reason not in said:
        said.add(refusal.reason)
        _LOGGER.warning(
            "event=message_refused by=%s reason=%s detail=%r", by, refusal.reason, refusal.detail
        )
