"""Windows of a counter that grows by whole batches."""

from __future__ import annotations

import pytest

from aclearn.control.tuner.rate_window import RateWindow, Reading


def _window(**changes: float) -> RateWindow:
    return RateWindow(**({"settle_s": 0.5, "longest_gap_s": 2.0} | changes))


def _readings(window: RateWindow, counters: list[int], every_s: float = 1.0) -> list[Reading]:
    """The readings of samples at 0, `every_s`, …"""
    found = [window.observe(i * every_s, c, runs=True) for i, c in enumerate(counters)]
    return [reading for reading in found if isinstance(reading, Reading)]


@pytest.mark.parametrize("phase", [0.0, 0.07, 0.21, 0.33, 0.48, 0.59])
@pytest.mark.parametrize("sample_s", [0.25, 0.1])
def test_a_window_is_as_exact_as_its_samples_whatever_the_batches(
    phase: float, sample_s: float
) -> None:
    # a batch of 160 every 0.6 s; whole batches in 4 s would be 6 or 7: 240 or 280 a second
    window, readings = _window(), []
    for i in range(4000):
        now = i * sample_s
        found = window.observe(now, 160 * int((now + phase) / 0.6), runs=True)
        if isinstance(found, Reading) and found.window_s >= 4.0:
            readings.append(found)
            window.begin(now, settled=True)
    assert len(readings) > 70
    true = 160 / 0.6
    assert max(abs(r.rate / true - 1) for r in readings) <= sample_s / 4.0 + 1e-9
    assert sum(r.rate for r in readings) / len(readings) == pytest.approx(true, rel=0.01)


def test_a_counter_that_rises_with_every_sample_is_read_between_the_first_and_the_last() -> None:
    readings = _readings(_window(), [0, 7, 20, 30, 45, 61])
    # it runs from the first rise on, and half a second more
    assert readings == [Reading(10.0, 1.0), Reading(12.5, 2.0), Reading(41 / 3, 3.0)]


def test_what_is_on_its_way_is_not_late_and_what_is_late_lowers_the_rate() -> None:
    # a batch of 100 every 2 s, then nothing
    counters = [0, 100, 100, 200, 200, 300, 300, 300, 300, 300]
    assert _readings(_window(), counters) == [
        Reading(50.0, 2.0),
        Reading(50.0, 2.0),  # the next is due in a second
        Reading(50.0, 2.0),  # now
        Reading(100 / 3, 3.0),
        Reading(25.0, 4.0),
    ]


def test_two_samples_of_one_moment_are_no_window() -> None:
    window = _window(settle_s=0.0)
    assert window.observe(0.0, 0, runs=True) is None
    assert window.observe(1.0, 100, runs=True) is None
    assert window.observe(1.0, 200, runs=True) is None  # risen, in no time
    assert window.observe(2.0, 300, runs=True) == Reading(200.0, 1.0)


def test_a_batch_that_never_comes_breaks_the_window_after_a_while() -> None:
    def found(window: RateWindow, counters: dict[float, int]) -> list:
        return [window.observe(now, counter, runs=True) for now, counter in counters.items()]

    assert found(_window(), {0.0: 0, 1.0: 100, 2.0: 100, 3.0: 100, 4.0: 100}) == [
        *(None, None, None, None),
        "nothing was counted for 2.5 s",  # since half a second after the first rise
    ]
    # once batches are known to take 3 s, it waits for two of them
    window, rises = _window(), {1.0: 100, 4.0: 200, 7.0: 300}
    counters = {float(t): max([0, *(n for at, n in rises.items() if at <= t)]) for t in range(8)}
    assert found(window, counters)[-1] == Reading(100 / 3, 3.0)
    window.begin(7.0)
    later = found(window, {float(t): 300 for t in range(8, 16)})
    assert later == [None] * 7 + ["nothing was counted for 6.5 s"]


def test_batches_that_take_longer_than_the_patience_are_measured_all_the_same() -> None:
    window = _window()
    found = [window.observe(float(t), 100 * (t // 5), runs=True) for t in range(40)]
    assert found[-1] == Reading(20.0, pytest.approx(found[-1].window_s))
