"""The prediction queue: act requests from the socket thread to the predictor's workers."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aclearn.wire import ActRequest


@dataclass(frozen=True, eq=False)
class Pending:
    """A request that waits for its answer.

    Attributes:
        came_at: time of arrival, in seconds of the queue's clock.
        deadline: later answers are useless, by the same clock.
    """

    routing_id: bytes
    request: ActRequest
    came_at: float
    deadline: float

    @property
    def key(self) -> tuple[bytes, int]:
        """Identifies the request."""
        return self.routing_id, self.request.request

    @property
    def size(self) -> int:
        """Number of observations of the request."""
        return self.request.size


class PredictionQueue:
    """A thread-safe queue of requests, from which workers take batches in order of arrival.

    A worker takes the waiting requests, as in GA3C; or with `min_batch`, it waits briefly for more,
    as in TorchBeast's dynamic batcher. A request stays whole and is computed once: a repeated one
    keeps its place and gets the new deadline. One past its deadline is dropped, since its actor has
    gone or asks another predictor.

    Args:
        max_batch: most observations of a batch; a larger request is a batch alone.
        min_batch: observations of its policy that a batch waits for; at most `max_batch`.
        batch_timeout_s: longest wait for `min_batch` from the arrival of the oldest request; at
            most half of the time to that request's deadline.

    Attributes:
        expired: number of requests dropped after their deadline.
        failed: number of requests in batches on which a worker failed.
    """

    def __init__(
        self,
        *,
        max_requests: int,
        max_batch: int,
        min_batch: int = 1,
        batch_timeout_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_requests, self._max_batch = max_requests, max_batch
        self._enough, self._batch_timeout_s = min(min_batch, max_batch), batch_timeout_s
        self._clock = clock
        self._waiting: OrderedDict[tuple[bytes, int], Pending] = OrderedDict()
        self._observations = Counter[str]()  # that wait, by policy
        self._closed = False
        self._changed = threading.Condition()
        self.expired = self.failed = 0

    def offer(self, requests: Sequence[Pending]) -> list[Pending]:
        """Append requests and wake one worker for all of them; returns the rejected ones."""
        refused = []
        with self._changed:
            for pending in requests:
                if not self._take_in(pending):
                    refused.append(pending)
            self._wake_another()
        return refused

    def cancel(self, routing_id: bytes, number: int) -> bool:
        """Remove a request; False if it is not in the queue."""
        with self._changed:
            return self._remove((routing_id, number))

    def take(self, *, timeout_s: float) -> list[Pending]:
        """The next batch, of one policy; [] if none comes within `timeout_s`, or after `close`."""
        with self._changed:
            now = self._clock()
            until = now + timeout_s
            while (due_at := self._due_at(now)) > now:
                if self._closed or until <= now:
                    # this worker may have been the one that waits for the oldest request
                    self._wake_another()
                    return []
                self._changed.wait(min(due_at, until) - now)
                now = self._clock()
            batch = self._cut(now)
            self._wake_another()
            return batch

    def give_up(self, batch: Sequence[Pending]) -> None:
        """Count the requests of a batch on which a worker failed."""
        with self._changed:
            self.failed += len(batch)

    def close(self) -> list[Pending]:
        """Reject all further requests and end all waits; returns the waiting requests."""
        with self._changed:
            self._closed = True
            left = list(self._waiting.values())
            self._waiting.clear()
            self._observations.clear()
            self._changed.notify_all()
            return left

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def fill(self) -> float:
        """Share of the bound in use, 0 to 1."""
        return len(self._waiting) / self._max_requests

    def _take_in(self, pending: Pending) -> bool:
        known = self._waiting.get(pending.key)
        if known is not None:
            # in its place: at the end, each repetition would delay it
            self._waiting[pending.key] = replace(pending, came_at=known.came_at)
            self._count(known, -1)
            self._count(pending, 1)
            return True
        if len(self._waiting) >= self._max_requests:
            self._drop_expired(self._clock())
        if self._closed or len(self._waiting) >= self._max_requests:
            return False
        self._waiting[pending.key] = pending
        self._count(pending, 1)
        return True

    def _due_at(self, now: float) -> float:
        """When a batch can be taken: at `now` or earlier, later, or never."""
        self._drop_expired(now)
        if not self._waiting:
            return float("inf")
        if max(self._observations.values()) >= self._enough:
            return now
        return self._waits_until(next(iter(self._waiting.values())))

    def _waits_until(self, oldest: Pending) -> float:
        patience_s = min(self._batch_timeout_s, 0.5 * (oldest.deadline - oldest.came_at))
        return oldest.came_at + patience_s

    def _due(self, now: float) -> str:
        """The policy of the very oldest request, or while that one waits, one with enough."""
        oldest = next(iter(self._waiting.values()))
        if self._waits_until(oldest) <= now:
            return oldest.request.policy
        asked = (pending.request.policy for pending in self._waiting.values())
        return next(policy for policy in asked if self._observations[policy] >= self._enough)

    def _cut(self, now: float) -> list[Pending]:
        """The oldest requests that fit, of the policy that is due."""
        policy = self._due(now)
        batch: list[Pending] = []
        size = 0
        for pending in list(self._waiting.values()):
            if pending.request.policy != policy:
                continue
            if batch and size + pending.size > self._max_batch:
                break
            self._remove(pending.key)
            if pending.deadline <= now:
                self.expired += 1
                continue
            batch.append(pending)
            size += pending.size
        return batch

    def _drop_expired(self, now: float) -> None:
        """Drop the oldest requests whose deadlines have passed."""
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if oldest.deadline > now:
                return
            self._remove(oldest.key)
            self.expired += 1

    def _remove(self, key: tuple[bytes, int]) -> bool:
        removed = self._waiting.pop(key, None)
        if removed is not None:
            self._count(removed, -1)
        return removed is not None

    def _count(self, pending: Pending, sign: int) -> None:
        self._observations[pending.request.policy] += sign * pending.size

    def _wake_another(self) -> None:
        if self._waiting:
            self._changed.notify()
