"""Worker threads that start and end."""

from __future__ import annotations

import itertools
import threading

import pytest

from services.role.worker_pool import MOST_FAILURES, WorkerPool
from tests.support.waiting import DEADLINE_S


class Job:
    """A step that waits for its turn and records its thread."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.done = itertools.count()
        self.finished = 0
        self.turn = threading.Semaphore(0)
        self.failing = threading.Event()
        self.lock = threading.Lock()
        self.made = 0

    def make(self):
        with self.lock:
            self.made += 1

        def step(meter) -> bool:
            with meter.waiting("turns"):
                mine = self.turn.acquire(timeout=0.02)
            if not mine:
                return False
            if self.failing.is_set():
                raise ValueError("broken on purpose")
            with self.lock:
                self.threads.add(threading.get_ident())
                self.finished += 1
            return True

        return step


@pytest.fixture
def job() -> Job:
    return Job()


@pytest.fixture
def pool(job):
    pool = WorkerPool(job.make, name="test")
    yield pool
    assert pool.close(DEADLINE_S)
    assert not [t for t in threading.enumerate() if t.name.startswith("test-")]


def living() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("test-")}


def test_a_pool_has_as_many_threads_as_it_was_told(pool, tools) -> None:
    for count in (3, 1, 4, 0, 2):
        pool.resize(count)
        assert pool.size == count
        names = {f"test-{index}" for index in range(count)}
        tools.wait_until(lambda names=names: living() == names, "the threads are there, or gone")


def test_every_turn_is_taken_once_while_the_count_changes(pool, job, tools) -> None:
    counts = itertools.cycle([1, 4, 2, 0, 3])
    for _ in range(60):
        pool.resize(next(counts))
        job.turn.release(5)
    pool.resize(4)
    tools.wait_until(lambda: job.finished == 300, "all turns are taken")
    assert pool.failures == 0


def test_a_worker_that_raises_is_replaced_and_the_others_go_on(pool, job, tools) -> None:
    pool.resize(2)
    tools.wait_until(lambda: job.made == 2, "both are made")
    turns = 0
    for failures in (1, 2, 3, 4):  # never three in a row, neither of all nor of one of them
        job.failing.set()
        turns += 1
        job.turn.release()
        tools.wait_until(lambda failures=failures: pool.failures == failures, "it failed")
        job.failing.clear()
        job.threads.clear()

        while len(job.threads) < 2:
            turns += 1
            job.turn.release()
            taken = turns - failures
            tools.wait_until(lambda taken=taken: job.finished == taken, "and they go on")
    pool.check()
    tools.wait_until(lambda: job.made == 6, "each failure made a new one")


@pytest.mark.parametrize(
    ("outcomes", "ends"),
    [
        (["fails", "idle", "fails", "idle", "fails"], True),  # to be idle is no success
        (["works", "fails", "fails", "fails"], True),
        (["fails", "fails", "works", "fails", "fails"], False),
        (["fails", "works", "fails", "fails", "idle", "works", "fails", "fails"], False),
    ],
)
def test_only_a_step_that_did_something_ends_a_row_of_failures(tools, outcomes, ends) -> None:
    left, never = iter(outcomes), threading.Event()
    exhausted = threading.Event()

    def step(meter) -> bool:
        outcome = next(left, None)
        if outcome is None:
            exhausted.set()
            never.wait(0.02)
        if outcome == "fails":
            raise ValueError("broken on purpose")
        return outcome == "works"

    pool = WorkerPool(lambda: step, name="test")
    pool.resize(1)
    try:
        if ends:
            tools.wait_until(lambda: living() == set(), "the pool ends")
            assert list(left) == []
            with pytest.raises(RuntimeError, match="in a row failed"):
                pool.check()
        else:
            assert exhausted.wait(DEADLINE_S)
            pool.check()
        assert pool.failures == outcomes.count("fails")
    finally:
        assert pool.close(DEADLINE_S)


def test_a_user_s_exit_within_a_step_is_a_failure_like_any_other(tools) -> None:
    def step(meter) -> bool:
        raise SystemExit(3)  # which ends a thread without a word

    pool = WorkerPool(lambda: step, name="test")
    pool.resize(1)
    tools.wait_until(lambda: living() == set(), "the pool ends")
    with pytest.raises(RuntimeError, match="in a row failed"):
        pool.check()
    assert pool.failures == MOST_FAILURES
    assert pool.close(DEADLINE_S)


def test_a_worker_that_always_fails_ends_the_pool_however_well_the_others_do(tools) -> None:
    go_on, has_gone_on = threading.Semaphore(0), threading.Semaphore(0)

    def make():
        broken, worked = threading.current_thread().name == "test-0", [False]

        def step(meter) -> bool:
            if broken:
                # the other one works in between: no three failures of the pool are in a row
                go_on.release()
                assert has_gone_on.acquire(timeout=DEADLINE_S)
                raise ValueError("broken on purpose")
            if worked[0]:
                has_gone_on.release()  # only now is the step before counted
            worked[0] = go_on.acquire(timeout=0.02)
            return worked[0]

        return step

    pool = WorkerPool(make, name="test")
    pool.resize(2)
    tools.wait_until(lambda: living() == set(), "the pool ends")
    with pytest.raises(RuntimeError, match="in a row failed"):
        pool.check()
    assert pool.failures == MOST_FAILURES
    assert pool.close(DEADLINE_S)


def test_a_worker_runs_from_its_first_step_until_it_has_left(tools) -> None:
    may_begin, may_end, steps = threading.Event(), threading.Event(), list[bool]()

    def make():
        first = [True]

        def step(meter) -> bool:
            steps.append(first[0])
            assert (may_begin if first[0] else may_end).wait(DEADLINE_S)
            first[0] = False
            return True

        return step

    pool = WorkerPool(make, name="test")
    pool.resize(2)
    assert (pool.size, pool.running) == (2, 0)  # they are being made
    may_begin.set()
    tools.wait_until(lambda: steps.count(False) == 2, "both are in their second step")
    assert pool.running == 2
    pool.resize(1)
    assert (pool.size, pool.running) == (1, 2)  # one has a step to end
    may_end.set()
    tools.wait_until(lambda: pool.running == 1, "it has left")
    assert pool.close(DEADLINE_S)
    assert pool.running == 0


def test_what_makes_a_worker_may_fail_too(tools) -> None:
    def make():
        raise OSError("no memory")

    pool = WorkerPool(make, name="test")
    pool.resize(1)
    tools.wait_until(lambda: living() == set(), "the pool ends: it cannot be made")
    assert pool.failures == MOST_FAILURES
    with pytest.raises(RuntimeError):
        pool.check()
    assert pool.close(DEADLINE_S)


def test_the_time_of_workers_that_have_ended_stays(pool, job, tools) -> None:
    pool.resize(3)
    job.turn.release(3)
    tools.wait_until(lambda: job.finished == 3, "each had a turn, or one had them all")
    pool.resize(0)
    tools.wait_until(lambda: living() == set(), "they have ended")
    waits = pool.waits()
    assert 0.0 < waits["turns"] < waits["total"]
    assert pool.waits() == waits  # no thread is left whose time passes
    pool.resize(1)
    tools.wait_until(lambda: pool.waits()["total"] > waits["total"], "the next one's is added")


def test_a_pool_that_is_closed_stays_so(pool, job, tools) -> None:
    pool.resize(2)
    assert pool.close(DEADLINE_S)
    pool.resize(3)  # a late request
    assert (pool.size, living()) == (0, set())


def test_a_negative_count_is_refused(pool) -> None:
    with pytest.raises(ValueError, match="at least 0, got -1"):
        pool.resize(-1)
