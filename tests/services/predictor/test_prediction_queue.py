"""The prediction queue: order, bounds of a batch, time-outs, cancelling, deadlines, its end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from services.predictor.prediction_queue import Pending, PredictionQueue
from tests.support.waiting import DEADLINE_S


def _pending(
    number: int,
    *,
    routing_id: bytes = b"actor-0",
    size: int = 1,
    came_at: float = 0.0,
    deadline: float = 1e12,
    policy: str = "default",
) -> Pending:
    """A request of `size` observations, whose values are unused here."""
    request = SimpleNamespace(request=number, size=size, policy=policy)
    return Pending(routing_id, request, came_at, deadline)


def _let_in(queue: PredictionQueue, pending: Pending) -> bool:
    return not queue.offer([pending])


def _queue(**options) -> PredictionQueue:
    return PredictionQueue(**{"max_requests": 1000, "max_batch": 8, **options})


def _numbers(batch: list[Pending]) -> list[int]:
    return [pending.request.request for pending in batch]


def _offer(queue: PredictionQueue, sizes: list[int]) -> None:
    for number, size in enumerate(sizes):
        assert _let_in(queue, _pending(number, size=size))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 12))
def test_batches_keep_order_and_bound_and_are_as_large_as_can_be(sizes, most) -> None:
    queue = _queue(max_batch=most)
    _offer(queue, sizes)
    batches = []
    while batch := queue.take(timeout_s=0):
        batches.append(batch)
    assert [number for batch in batches for number in _numbers(batch)] == list(range(len(sizes)))
    for i, batch in enumerate(batches):
        size = sum(pending.size for pending in batch)
        assert size <= most or len(batch) == 1
        if i + 1 < len(batches):
            assert size + batches[i + 1][0].size > most


def test_a_batch_has_requests_for_one_policy_and_the_others_keep_their_places() -> None:
    queue = _queue(max_batch=3)
    for number, policy in enumerate("aabababba"):
        assert _let_in(queue, _pending(number, policy=policy))
    batches = [_numbers(queue.take(timeout_s=0)) for _ in range(4)]
    # the oldest request decides, and each policy's requests keep their order
    assert batches == [[0, 1, 3], [2, 4, 6], [5, 8], [7]]


def test_a_policy_waits_for_the_least_batch_of_its_own_requests(tools) -> None:
    clock = tools.Clock(0.0)
    queue = _queue(min_batch=2, batch_timeout_s=1.0, clock=clock)
    for number, policy in enumerate("ab"):
        assert _let_in(queue, _pending(number, policy=policy))
    assert queue.take(timeout_s=0) == []  # one observation of each
    assert _let_in(queue, _pending(2, policy="b"))
    assert _numbers(queue.take(timeout_s=0)) == [1, 2]  # the oldest one waits on
    assert queue.take(timeout_s=0) == []
    assert queue.offer([_pending(3, policy="b"), _pending(4, policy="b")]) == []
    clock.now = 1.0
    assert _numbers(queue.take(timeout_s=0)) == [0]  # has waited long enough, and comes first
    assert _numbers(queue.take(timeout_s=0)) == [3, 4]


def test_a_full_queue_refuses_and_has_room_again_after_a_batch() -> None:
    queue = _queue(max_requests=4, max_batch=1)
    _offer(queue, [1, 1])
    assert queue.fill == 0.5
    refused = queue.offer([_pending(number) for number in range(2, 7)])
    assert _numbers(refused) == [4, 5, 6]
    assert queue.fill == 1.0
    assert not _let_in(queue, _pending(9))
    assert _numbers(queue.take(timeout_s=0)) == [0]
    assert _let_in(queue, _pending(9))


def test_a_request_offered_again_keeps_its_place_and_gets_the_new_deadline(tools) -> None:
    clock = tools.Clock(0.0)
    queue = _queue(max_requests=2, max_batch=2, clock=clock)
    old = _pending(7, size=2, deadline=4.0)
    other = _pending(7, routing_id=b"actor-1", deadline=6.0)  # the same number of another actor
    again = _pending(7, size=1, came_at=3.1, deadline=7.1)
    assert queue.offer([old, other, again]) == []  # also at the bound
    clock.now = 5.0
    # one and one observation make a batch; of the older one only when it came is left
    first, second = queue.take(timeout_s=0)
    assert (first.request, first.deadline, first.came_at) == (again.request, 7.1, 0.0)
    assert second is other
    assert queue.expired == 0


def test_a_cancelled_request_is_not_computed(tools) -> None:
    queue = _queue(min_batch=3, batch_timeout_s=1.0, clock=tools.Clock(0.0))
    _offer(queue, [1, 1, 1])
    assert queue.cancel(b"actor-0", 1)
    assert not queue.cancel(b"actor-0", 1)
    assert not queue.cancel(b"actor-1", 0)
    assert queue.take(timeout_s=0) == []  # nor does it count for the least batch
    assert _let_in(queue, _pending(5))
    assert _numbers(queue.take(timeout_s=0)) == [0, 2, 5]
    assert not queue.cancel(b"actor-0", 0)
    assert queue.take(timeout_s=0) == []


def test_what_is_past_its_deadline_is_dropped_and_counted(tools) -> None:
    clock = tools.Clock(10.0)
    queue = _queue(clock=clock)
    for number, deadline in enumerate([13.0, 13.5, 14.0]):
        _let_in(queue, _pending(number, came_at=10.0, deadline=deadline))
    clock.now = 13.5
    assert _numbers(queue.take(timeout_s=0)) == [2]
    assert queue.expired == 2
    _let_in(queue, _pending(3, deadline=14.0))
    clock.now = 20.0
    assert queue.take(timeout_s=0) == []
    assert queue.expired == 3


def test_a_deadline_behind_a_later_one_is_kept_too(tools) -> None:
    queue = _queue(clock=tools.Clock(10.0))
    for number, deadline in enumerate([20.0, 5.0, 20.0]):
        _let_in(queue, _pending(number, deadline=deadline))
    assert _numbers(queue.take(timeout_s=0)) == [0, 2]
    assert queue.expired == 1


def test_a_queue_full_of_what_has_expired_is_not_full(tools) -> None:
    clock = tools.Clock(10.0)
    queue = _queue(max_requests=2, clock=clock)
    for number in range(2):
        _let_in(queue, _pending(number, deadline=13.0))
    assert not _let_in(queue, _pending(2, deadline=13.0))
    clock.now = 13.0
    assert _let_in(queue, _pending(3, deadline=16.0))
    assert queue.expired == 2


def test_a_batch_waits_for_the_least_size_until_the_time_out(tools) -> None:
    clock = tools.Clock(10.0)
    queue = _queue(min_batch=3, batch_timeout_s=0.5, clock=clock)
    _let_in(queue, _pending(0, came_at=10.0))
    assert queue.take(timeout_s=0) == []
    _let_in(queue, _pending(1, size=2, came_at=10.0))
    assert _numbers(queue.take(timeout_s=0)) == [0, 1]  # enough: at once
    _let_in(queue, _pending(2, came_at=10.25))
    clock.now = 10.5
    _let_in(queue, _pending(3, came_at=10.5))
    clock.now = 10.74
    assert queue.take(timeout_s=0) == []
    clock.now = 10.75  # the oldest one's time, not the newest one's
    assert _numbers(queue.take(timeout_s=0)) == [2, 3]


def test_a_least_batch_above_the_largest_is_the_largest(tools) -> None:
    queue = _queue(max_batch=2, min_batch=5, batch_timeout_s=1.0, clock=tools.Clock(0.0))
    _offer(queue, [1, 1, 1])
    assert _numbers(queue.take(timeout_s=0)) == [0, 1]
    assert queue.take(timeout_s=0) == []


def test_a_time_out_beyond_the_deadline_lets_no_request_expire(tools) -> None:
    clock = tools.Clock(10.0)
    queue = _queue(min_batch=9, batch_timeout_s=10.0, clock=clock)
    _let_in(queue, _pending(0, came_at=10.0, deadline=13.0))
    clock.now = 11.5
    assert _numbers(queue.take(timeout_s=0)) == [0]


def _taking(queue: PredictionQueue, taken: list[list[Pending]]) -> threading.Thread:
    thread = threading.Thread(
        target=lambda: taken.append(queue.take(timeout_s=DEADLINE_S)), daemon=True
    )
    thread.start()
    return thread


def _ended(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(DEADLINE_S)
    return not any(thread.is_alive() for thread in threads)


def test_a_waiting_worker_takes_an_incomplete_batch_when_the_time_is_over() -> None:
    queue, taken = _queue(min_batch=2, batch_timeout_s=0.05), []
    worker = _taking(queue, taken)
    began = time.monotonic()
    _let_in(queue, _pending(0, came_at=began))
    assert _ended(worker)
    assert [_numbers(batch) for batch in taken] == [[0]]
    assert time.monotonic() - began >= 0.05


def test_requests_offered_together_go_to_as_many_workers_as_there_are_batches() -> None:
    queue, taken = _queue(max_batch=2), []
    workers = [_taking(queue, taken) for _ in range(3)]
    # a worker that was not woken would find them expired at the end of its wait
    deadline = time.monotonic() + 0.6 * DEADLINE_S
    queue.offer([_pending(number, deadline=deadline) for number in range(6)])
    assert _ended(*workers)
    assert sorted(_numbers(batch) for batch in taken) == [[0, 1], [2, 3], [4, 5]]


def test_the_oldest_request_is_watched_though_its_first_watcher_gives_up() -> None:
    # the first waiter is woken, sees too small a batch and leaves; the second one must watch it
    queue, taken = _queue(min_batch=2, batch_timeout_s=0.8), []
    first = threading.Thread(target=lambda: taken.append(queue.take(timeout_s=0.2)), daemon=True)
    first.start()
    second = _taking(queue, taken)
    began = time.monotonic()
    _let_in(queue, _pending(0, came_at=began))
    assert _ended(first, second)
    assert sorted(map(_numbers, taken)) in ([[], [0]], [[0], []])
    assert time.monotonic() - began < DEADLINE_S


def test_closing_ends_all_waits_and_gives_back_what_was_left() -> None:
    queue, taken = _queue(min_batch=2, batch_timeout_s=1000.0), []
    workers = [_taking(queue, taken) for _ in range(3)]
    _let_in(queue, _pending(0, came_at=time.monotonic()))
    assert _numbers(queue.close()) == [0]
    assert _ended(*workers)
    assert taken == [[], [], []]
    assert not _let_in(queue, _pending(1))
    assert queue.take(timeout_s=DEADLINE_S) == []
    assert queue.close() == []
    assert queue.fill == 0


def test_nothing_is_lost_or_doubled_between_threads() -> None:
    queue = _queue(max_requests=7, max_batch=3, min_batch=2, batch_timeout_s=0.001)
    total, taken, lock = 600, Counter(), threading.Lock()

    def consume() -> None:
        while batch := queue.take(timeout_s=DEADLINE_S):
            with lock:
                taken.update(_numbers(batch))

    workers = [threading.Thread(target=consume, daemon=True) for _ in range(4)]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + DEADLINE_S
    for number in range(total):
        while not _let_in(queue, _pending(number, came_at=time.monotonic())):
            assert time.monotonic() < deadline
    while len(queue):
        assert time.monotonic() < deadline
    queue.close()
    assert _ended(*workers)
    assert taken == Counter(range(total))
