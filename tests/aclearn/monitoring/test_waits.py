"""Waits are measured by an injected clock, so every expected share is arithmetic."""

from __future__ import annotations

import time

import pytest

from aclearn.monitoring import WaitMeter, shares


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_seconds_add_up_by_label_and_the_total_runs_from_the_start() -> None:
    clock = _Clock()
    meter = WaitMeter(clock)
    for label, waited, worked in [("actions", 2.0, 1.0), ("queue", 0.5, 0.25), ("actions", 3.0, 0)]:
        with meter.waiting(label):
            clock.now += waited
        clock.now += worked
    assert meter.seconds() == {"actions": 5.0, "queue": 0.5, "total": 6.75}


def test_a_wait_that_goes_on_counts_up_to_now() -> None:
    clock = _Clock()
    meter = WaitMeter(clock)
    with meter.waiting("queue"):
        clock.now += 4.0
        assert meter.seconds() == {"queue": 4.0, "total": 4.0}
        clock.now += 1.0
    clock.now += 5.0
    assert meter.seconds() == {"queue": 5.0, "total": 10.0}


def test_a_wait_that_ends_with_an_error_is_counted() -> None:
    clock = _Clock()
    meter = WaitMeter(clock)
    with pytest.raises(TimeoutError), meter.waiting("queue"):
        clock.now += 2.0
        raise TimeoutError
    clock.now += 2.0
    assert meter.seconds() == {"queue": 2.0, "total": 4.0}


@pytest.mark.parametrize("label", ["total", "working"])
def test_labels_that_the_meter_fills_itself_are_refused(label: str) -> None:
    with pytest.raises(ValueError, match=f"cannot be called '{label}'"):
        WaitMeter(_Clock()).waiting(label)


def test_shares_of_the_time_between_add_up_to_one() -> None:
    before = {"actions": 1.0, "total": 10.0}
    after = {"actions": 3.0, "queue": 1.0, "total": 18.0}
    assert shares(before, after) == {"actions": 0.25, "queue": 0.125, "working": 0.625}


def test_without_a_beginning_the_shares_are_those_since_the_start() -> None:
    assert shares({}, {"queue": 3.0, "total": 4.0}) == {"queue": 0.75, "working": 0.25}


def test_where_no_time_passed_everything_is_working() -> None:
    same = {"queue": 3.0, "total": 4.0}
    assert shares(same, same) == {"working": 1.0}


def test_labels_that_exceed_the_total_still_add_up_to_one() -> None:
    parts = shares({"total": 0.0}, {"a": 3.0, "b": 1.0, "total": 3.9999})
    assert parts == {"a": 0.75, "b": 0.25, "working": 0.0}


def test_seconds_without_a_total_are_refused() -> None:
    with pytest.raises(ValueError, match=r"only \['queue'\]"):
        shares({}, {"queue": 1.0})


def test_a_use_costs_less_than_a_microsecond() -> None:
    meter = WaitMeter()
    uses = 500
    best = float("inf")
    for _ in range(400):  # the best of many short ones: other processes share the machine
        began = time.perf_counter()
        for _ in range(uses):
            with meter.waiting("queue"):
                pass
        best = min(best, (time.perf_counter() - began) / uses)
    assert best < 1e-6
