"""Time that counts only while the clock is looked at."""

from __future__ import annotations

from aclearn.telemetry import ActiveClock


def test_what_passed_without_a_look_counts_up_to_the_bound() -> None:
    time = ActiveClock(2.0)
    assert time.seconds == 0.0
    looks = [(100.0, 0.0, 0.0), (100.5, 0.0, 0.5), (102.5, 0.0, 2.5), (702.5, 600.0, 4.5)]
    for now, away_s, seconds in [*looks, (703.0, 0.0, 5.0), (703.0, 0.0, 5.0)]:
        if now > 100.0:
            assert time.at(now) == seconds
        assert (time.look(now), time.seconds) == (away_s, seconds)
    assert time.at(704.5) == 6.5
    assert time.at(800.0) == 7.0
