"""Clients that ask for what is newer are told how long to wait, by their number."""

from __future__ import annotations

import pytest

from services.role.asking_pace import AskingPace


def test_more_clients_ask_less_often_so_that_all_of_them_ask_two_thousand_times_a_second() -> None:
    pace, now = AskingPace(), 0.0
    for count in range(1, 1001):
        assert pace.pause_s(b"%d" % count, now) == count / 2000
    asked = [0.0] * 1000
    for turn in range(3):
        for client in range(1000):
            now = 0.5 * turn + client / 2000
            asked[client] = pace.pause_s(b"%d" % (client + 1), now)
    assert set(asked) == {0.5}  # asked again after it, 1000 clients make 2000 requests a second


def test_clients_that_are_gone_do_not_count_and_cost_no_memory() -> None:
    pace = AskingPace()
    for client in range(5000):
        pace.pause_s(b"%d" % client, 0.0)
    assert pace.pause_s(b"left", 5.0) == pytest.approx(5001 / 2000)  # they may wait their pause
    assert pace.pause_s(b"left", 9.0) == pytest.approx(5001 / 2000)
    pace.pause_s(b"left", 9.0)
    assert pace.pause_s(b"left", 9.1) == 1 / 2000
    assert len(pace._asked_at) == 1
