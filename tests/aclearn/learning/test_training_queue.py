"""The training queue: order, both bounds, deadlines, and its end."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.learning import TrainingQueue
from tests.support.waiting import DEADLINE_S


def _queue(max_bytes: int = 1000, max_items: int = 100, **options) -> TrainingQueue[int]:
    return TrainingQueue(max_bytes=max_bytes, max_items=max_items, **options)


class Clock:
    """Time that advances by `step` with each reading."""

    def __init__(self, step: float) -> None:
        self.now, self.step, self.looks = 0.0, step, 0

    def __call__(self) -> float:
        self.looks += 1
        self.now += self.step
        return self.now


def test_fill_is_the_share_of_the_nearer_bound() -> None:
    queue = _queue(max_bytes=100, max_items=4)
    assert queue.fill == 0
    queue.offer(0, 10)
    assert queue.fill == 0.25
    queue.offer(1, 60)
    assert queue.fill == pytest.approx(0.7)
    queue.offer(2, 300)
    assert queue.fill == 1.0


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 6),
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from(["offer", "take"]), st.integers(1, 40)), max_size=40),
)
def test_bounds_and_order_hold_after_any_history(max_bytes, max_items, batch, history) -> None:
    batch = min(batch, max_items)
    queue = _queue(max_bytes, max_items, batch_items=batch)
    model: list[tuple[int, int]] = []
    for number, (what, size) in enumerate(history):
        held = sum(size for _, size in model)
        if what == "offer":
            room = len(model) < max_items and (len(model) < batch or held < max_bytes)
            assert queue.offer(number, size) == room
            if room:
                model.append((number, size))
        else:
            count = size % 4 + 1
            expected = [item for item, _ in model[:count]] if len(model) >= count else []
            assert queue.take(count, timeout_s=0) == expected
            model = model[len(expected) :]
        held = sum(size for _, size in model)
        assert len(queue) == len(model) <= max_items
        assert held < max(max_bytes, 40 * (batch - 1)) + 40
        enough = len(model) >= batch and held >= max_bytes
        assert queue.full == (len(model) >= max_items or enough)


def test_the_deadline_is_kept_by_the_given_clock() -> None:
    # every look at the clock costs 4 s of its time: 10 s are over before anything real has passed
    clock = Clock(4.0)
    queue = _queue(clock=clock)
    started = time.monotonic()
    threading.Timer(0.0, queue.offer, (0, 1)).start()  # wakes the waiter, who wants two
    assert queue.take(2, timeout_s=4.0) == []
    assert time.monotonic() - started < DEADLINE_S
    assert clock.now >= 8.0


def test_closing_wakes_a_waiter_with_nothing() -> None:
    queue = _queue()
    taken: list[list[int]] = []
    waiter = threading.Thread(
        target=lambda: taken.append(queue.take(2, timeout_s=DEADLINE_S)), daemon=True
    )
    waiter.start()
    queue.offer(0, 1)
    assert queue.close() == [0]
    waiter.join(DEADLINE_S)
    assert not waiter.is_alive()
    assert taken == [[]]


def test_a_closed_queue_gives_back_what_waited_and_takes_nothing_more() -> None:
    queue = _queue()
    for item in range(3):
        queue.offer(item, 1)
    assert queue.close() == [0, 1, 2]
    assert not queue.offer(3, 1)
    assert queue.take(1, timeout_s=DEADLINE_S) == []
    assert queue.close() == []
    assert queue.fill == 0


def test_nothing_is_lost_or_doubled_between_threads() -> None:
    queue, total = _queue(max_items=3), 500
    taken: list[int] = []

    def consume() -> None:
        while len(taken) < total:
            taken.extend(queue.take(1, timeout_s=DEADLINE_S))

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    deadline = time.monotonic() + DEADLINE_S
    for item in range(total):
        while not queue.offer(item, 1):
            assert time.monotonic() < deadline
    consumer.join(DEADLINE_S)
    assert not consumer.is_alive()
    assert taken == list(range(total))
