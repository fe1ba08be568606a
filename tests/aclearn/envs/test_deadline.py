from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from aclearn.envs.deadline import StepDeadline, StepHungError
from tests.support.waiting import DEADLINE_S, wait_for


@pytest.fixture
def outer() -> Iterator[list[float]]:
    """Another alarm: the times at which it went off. pytest-timeout's is restored."""
    times: list[float] = []
    handler = signal.signal(signal.SIGALRM, lambda *_: times.append(time.monotonic()))
    timer = signal.setitimer(signal.ITIMER_REAL, 0.0)
    yield times
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.fixture
def deadline(outer: list[float]) -> Iterator[StepDeadline]:
    made = StepDeadline(0.05)
    yield made
    made.close()


def hang():
    threading.Event().wait(DEADLINE_S)


def overrun(deadline):
    with deadline:
        hang()


def test_an_overrun_raises_in_the_body_each_time(deadline):
    for _ in range(3):
        with pytest.raises(StepHungError, match=r"within 0\.05 s"):
            overrun(deadline)


def test_a_body_in_time_leaves_no_alarm_behind_nor_does_one_that_raises(deadline):
    deadline.timeout_s = DEADLINE_S
    for error in (None, KeyError):
        with pytest.raises(KeyError) if error else nullcontext(), deadline:
            remaining_s, _ = signal.getitimer(signal.ITIMER_REAL)
            assert 0.0 < remaining_s <= DEADLINE_S
            if error:
                raise error
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_code_that_swallows_the_first_alarm_gets_another(deadline):
    swallowed = 0
    with pytest.raises(StepHungError), deadline:
        try:
            hang()
        except BaseException:
            swallowed += 1
        hang()
    assert swallowed == 1


def test_an_alarm_set_outside_keeps_its_time_and_its_handler(outer, deadline):
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    with pytest.raises(StepHungError):
        overrun(deadline)
    remaining_s, _ = signal.getitimer(signal.ITIMER_REAL)
    assert 0.0 < remaining_s <= DEADLINE_S - deadline.timeout_s
    assert outer == []
    signal.setitimer(signal.ITIMER_REAL, 0.01)  # it is due
    wait_for(lambda: outer, "it goes off")


def test_an_alarm_set_outside_that_came_due_meanwhile_is_not_lost(outer, deadline):
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    with pytest.raises(StepHungError):
        overrun(deadline)
    wait_for(lambda: outer, "it goes off")
    assert len(outer) == 1


def test_the_last_close_gives_the_signal_back(outer):
    theirs = signal.getsignal(signal.SIGALRM)
    first, second = StepDeadline(1.0), StepDeadline(1.0)
    for deadline in (first, second):
        with deadline:
            pass
    first.close()
    assert signal.getsignal(signal.SIGALRM) != theirs
    second.close()
    assert signal.getsignal(signal.SIGALRM) == theirs


def test_outside_the_main_thread_it_does_nothing(deadline):
    timers = []

    def work():
        with deadline:
            timers.append(signal.getitimer(signal.ITIMER_REAL))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(DEADLINE_S)
    assert timers == [(0.0, 0.0)]
