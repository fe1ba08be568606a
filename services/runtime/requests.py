"""Requests that wait for their answers: what is sent again, given up, or asked of another peer.

Pure: no socket, and the clock's value is given.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class RetryPolicy:
    """When a request is sent again, and when another peer is asked. All times are in seconds.

    Attributes:
        answer_within_s: a request without an answer for so long is sent again.
        once: it is given up instead: no request is sent twice.
        silent_after_s: while a request waits, a peer of which nothing was heard for so long is
            passed over.
        reached_within_s: the same where nothing could be sent to the peer.
        retry_first_s: pause after a request that could not be sent; it doubles with each try.
        retry_most_s: the longest such pause.
        most_failures: a request is given up that could not be sent so many times in a row.
        no_room_pause_s: pause after a peer has refused a request since its queue is full.
    """

    answer_within_s: float
    once: bool = False
    silent_after_s: float = math.inf
    reached_within_s: float = math.inf
    retry_first_s: float = 0.0
    retry_most_s: float = 0.0
    most_failures: int | None = None
    no_room_pause_s: float = 0.5


@dataclass
class _Request:
    message: Any
    since: float  # from when on the peer that is asked now could have been heard
    due_at: float  # when it is sent, again or for the first time
    sent: bool = False
    failures: int = 0  # tries in a row that could not be sent


class Requests(Generic[Key]):
    """The requests of one client that wait for an answer, each under a key.

    Attributes:
        repeated: how often a request was sent again.
        given_up: requests whose answer is not waited for any more.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._waiting: dict[Key, _Request] = {}
        self._heard_at = -math.inf
        self.repeated = 0
        self.given_up = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key, message: Any, now: float) -> None:
        """Take a request that is due at once, in place of an older one under its key."""
        self._waiting[key] = _Request(message, since=now, due_at=now)

    def due(self, now: float) -> list[tuple[Key, Any]]:
        """The requests to send now; those that may be sent once are given up instead."""
        late = [(key, r) for key, r in self._waiting.items() if now >= r.due_at]
        if self._policy.once:
            for key in [key for key, request in late if request.sent]:
                del self._waiting[key]
                self.given_up += 1
        return [(key, r.message) for key, r in late if not (r.sent and self._policy.once)]

    def tried(self, key: Key, now: float, *, sent: bool) -> None:
        """A request was sent, or could not be."""
        request, policy = self._waiting[key], self._policy
        if sent:
            self.repeated += request.sent
            request.sent, request.failures = True, 0
            request.due_at = now + policy.answer_within_s
            if policy.once:
                request.message = None  # it may be long
        else:
            pause_s = policy.retry_first_s * 2.0 ** min(request.failures, 60)
            request.failures += 1
            request.due_at = now + min(pause_s, policy.retry_most_s)
            if request.failures == policy.most_failures:
                del self._waiting[key]
                self.given_up += 1

    def sent(self, key: Key) -> bool:
        """Whether the peer that is asked now may answer the request."""
        return key in self._waiting and self._waiting[key].sent

    def answered(self, key: Key) -> None:
        """The answer to a request has come; to one that does not wait it changes nothing."""
        self._waiting.pop(key, None)

    def cancel(self, key: Key) -> bool:
        """Wait for this answer no more; as `sent`."""
        sent = self.sent(key)
        self._waiting.pop(key, None)
        return sent

    def heard(self, now: float) -> None:
        """The peer has said something."""
        self._heard_at = now

    def no_room(self, now: float) -> None:
        """The peer had no room for one of the requests: all are sent again after a pause."""
        for request in self._waiting.values():
            request.due_at = min(request.due_at, now + self._policy.no_room_pause_s)

    def silent(self, now: float) -> bool:
        """Whether another peer should be asked."""
        if not self._waiting:
            return False
        since = max(self._heard_at, min(request.since for request in self._waiting.values()))
        reached = any(request.sent for request in self._waiting.values())
        policy = self._policy
        return now - since >= (policy.silent_after_s if reached else policy.reached_within_s)

    def moved(self, now: float) -> None:
        """Another peer is asked from now on: everything at once, but what may be sent once."""
        if self._policy.once:
            self._waiting.clear()
        for key, request in self._waiting.items():
            self._waiting[key] = _Request(request.message, since=now, due_at=now)
