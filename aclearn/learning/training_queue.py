"""The trainer's queue of admitted unrolls between sockets and learner."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class TrainingQueue(Generic[Item]):
    """A thread-safe queue bounded in bytes and items; when full, the producer keeps its item.

    The bound in bytes caps memory, the bound in items caps staleness: every waiting unroll adds lag
    to those behind it. An item is accepted while no bound is reached, and the bound in bytes
    applies only once a batch is there. So memory stays below one item more than the larger of
    `max_bytes` and a batch, and neither a large unroll nor a large batch can block a run.

    Args:
        max_bytes: sum of the sizes given to `offer`.
        batch_items: largest count of `take`.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        max_items: int,
        batch_items: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._batch_items = batch_items
        self._max_bytes, self._max_items, self._clock = max_bytes, max_items, clock
        self._items: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def offer(self, item: Item, size_bytes: int) -> bool:
        """Append `item` unless the queue is full or closed; whether it was accepted."""
        with self._changed:
            if self._closed or self.full:
                return False
            self._items.append((item, size_bytes))
            self._bytes += size_bytes
            self._changed.notify_all()
            return True

    def take(self, count: int, *, timeout_s: float) -> list[Item]:
        """The oldest `count` items, or [] if there are fewer at the deadline or on close."""
        deadline = self._clock() + timeout_s
        with self._changed:
            while len(self._items) < count:
                left = deadline - self._clock()
                if self._closed or left <= 0:
                    return []
                self._changed.wait(left)
            return [self._pop() for _ in range(count)]

    def close(self) -> list[Item]:
        """Refuse all further items; returns the waiting ones."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            return [self._pop() for _ in range(len(self._items))]

    def _pop(self) -> Item:
        item, size_bytes = self._items.popleft()
        self._bytes -= size_bytes
        return item

    @property
    def full(self) -> bool:
        """Whether `offer` would refuse an item now."""
        items = len(self._items)
        too_many_bytes = items >= self._batch_items and self._bytes >= self._max_bytes
        return items >= self._max_items or too_many_bytes

    @property
    def fill(self) -> float:
        """Fill level, 0 to 1, of the bound that is nearer."""
        return min(1.0, max(len(self._items) / self._max_items, self._bytes / self._max_bytes))

    def __len__(self) -> int:
        return len(self._items)
