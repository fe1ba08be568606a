"""Unanswered requests, step by step on a clock that the test sets."""

from __future__ import annotations

import math

import pytest

from services.role.requests import Requests, RetryPolicy


def _ask(requests: Requests[str], key: str, now: float, *, sent: bool = True) -> None:
    requests.add(key, f"message of {key}", now)
    assert (key, f"message of {key}") in requests.due(now)
    requests.tried(key, now, sent=sent)


def test_a_request_is_sent_again_at_each_deadline_until_it_is_answered() -> None:
    requests = Requests[str](RetryPolicy(answer_within_s=3.0))
    _ask(requests, "a", 0.0)
    _ask(requests, "b", 1.0)
    assert requests.due(2.9) == []
    assert requests.due(3.0) == [("a", "message of a")]
    requests.tried("a", 3.0, sent=True)
    requests.answered("b", 3.0)
    requests.answered("b", 3.0)  # a late answer has no effect
    assert (requests.due(5.9), requests.due(6.0)) == ([], [("a", "message of a")])
    assert (len(requests), "a" in requests, "b" in requests) == (1, True, False)
    assert (requests.repeated, requests.given_up) == (1, 0)


def test_a_request_that_may_be_sent_once_is_given_up_and_never_sent_again() -> None:
    requests = Requests[str](RetryPolicy(answer_within_s=60.0, once=True))
    _ask(requests, "sent", 0.0)
    _ask(requests, "kept here", 0.0, sent=False)
    assert requests.due(59.0) == [("kept here", "message of kept here")]
    requests.cancel("kept here")
    assert requests.due(60.0) == []
    assert (len(requests), requests.given_up, requests.repeated) == (0, 1, 0)
    _ask(requests, "to the dead", 61.0)
    requests.moved(62.0)  # the next peer must not get a request that another one may have
    assert (len(requests), requests.due(1000.0), requests.given_up) == (0, [], 1)


def test_a_peer_that_never_answers_what_is_sent_once_is_silent_again_and_again() -> None:
    requests = Requests[str](RetryPolicy(answer_within_s=5.0, once=True, silent_after_s=5.0))
    silent_at = []
    for now in range(0, 41):
        if requests.silent(float(now)):
            silent_at.append(now)
            requests.moved(float(now), same_peer=True)
        requests.due(float(now))  # gives up what is late
        if not requests:
            _ask(requests, "a", float(now))
    assert silent_at == [5, 15, 35]
    requests.heard(41.0)
    _ask(requests, "b", 41.0)
    assert not requests.silent(45.9) and requests.silent(46.0)


def test_an_answer_in_order_shows_that_those_sent_before_are_lost() -> None:
    requests = Requests[str](RetryPolicy(math.inf, in_order=True))
    for now, key in enumerate("abc"):
        _ask(requests, key, float(now))
    requests.answered("b", 3.0)
    assert requests.due(3.0) == [("a", "message of a")]
    requests.tried("a", 3.0, sent=True)
    requests.answered("a", 4.0)
    assert [key for key, _ in requests.due(4.0)] == ["c"]  # it was sent before a was sent again
    assert requests.repeated == 1


def test_in_order_none_overtakes_one_that_could_not_leave() -> None:
    policy = RetryPolicy(math.inf, in_order=True, retry_first_s=1.0, retry_most_s=1.0)
    requests = Requests[str](policy)
    _ask(requests, "a", 0.0)
    requests.moved(1.0)
    requests.tried("a", 1.0, sent=False)  # the new connection is not there yet
    requests.add("b", "message of b", 1.5)
    assert requests.due(1.5) == []
    assert [key for key, _ in requests.due(2.0)] == ["a", "b"]


def test_the_same_peer_is_asked_over_new_connections_ever_more_rarely_until_it_is_heard() -> None:
    requests = Requests[str](RetryPolicy(math.inf, silent_after_s=3.0))
    _ask(requests, "a", 0.0)
    _ask(requests, "b", 1.0)
    times = []
    for now in range(100):
        if requests.silent(now):
            requests.moved(now, same_peer=True)
            assert [key for key, _ in requests.due(now)] == ["a", "b"]
            for key in "ab":
                requests.tried(key, now, sent=True)
            times.append(now)
    assert times == [3, 9, 21, 45, 93]  # 3 s · (2^n - 1)
    assert requests.repeated == 10
    requests.heard(100.0)
    assert (requests.silent(102.9), requests.silent(103.0)) == (False, True)
    requests.moved(103.0, same_peer=True)
    requests.moved(104.0)  # to another one
    for key in "ab":
        requests.tried(key, 104.0, sent=True)
    assert (requests.silent(106.9), requests.silent(107.0)) == (False, True)


def test_the_pause_after_a_failure_doubles_up_to_its_bound() -> None:
    policy = RetryPolicy(answer_within_s=9.0, retry_first_s=0.1, retry_most_s=0.5)
    requests = Requests[str](policy)
    requests.add("a", "?", 0.0)
    now, pauses = 0.0, []
    for _ in range(2000):  # and no failure in a row is one too many
        requests.tried("a", now, sent=False)
        pauses.append(round(min(p for p in range(1, 100) if requests.due(now + p / 100)) / 100, 2))
        now += pauses[-1]
        if len(pauses) > 6:
            break
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5, 0.5]
    requests.tried("a", now, sent=True)
    requests.tried("a", now + 9.0, sent=False)
    assert requests.due(now + 9.1)  # from the start, after one that was sent


def test_a_request_is_given_up_after_so_many_failures_in_a_row() -> None:
    policy = RetryPolicy(9.0, retry_first_s=1.0, retry_most_s=1.0, most_failures=3)
    requests = Requests[str](policy)
    requests.add("a", "?", 0.0)
    for now, sent in enumerate([False, False, True]):
        assert requests.due(float(now))
        requests.tried("a", float(now), sent=sent)
    for now in (11.0, 12.0, 13.0):  # counted from the one that was sent
        assert (requests.due(now), requests.due(now - 0.1)) == ([("a", "?")], [])
        requests.tried("a", now, sent=False)
    assert ("a" in requests, requests.given_up, requests.due(99.0)) == (False, 1, [])


@pytest.mark.parametrize(("sent", "limit_s"), [(True, 6.0), (False, 2.0)])
def test_another_peer_is_asked_where_one_is_silent_or_out_of_reach(sent, limit_s) -> None:
    policy = RetryPolicy(answer_within_s=3.0, silent_after_s=6.0, reached_within_s=2.0)
    requests = Requests[str](policy)
    assert not requests.silent(1e9)  # no request waits
    _ask(requests, "a", 10.0, sent=sent)
    assert not requests.silent(9.9 + limit_s)
    assert requests.silent(10.0 + limit_s)
    requests.heard(13.0)
    assert not requests.silent(12.9 + limit_s)
    assert requests.silent(13.0 + limit_s)
    requests.moved(30.0)
    assert not requests.silent(31.9)
    assert requests.due(30.0) == [("a", "message of a")]


def test_a_peer_without_room_gets_every_request_again_after_a_pause() -> None:
    requests = Requests[str](RetryPolicy(answer_within_s=3.0, no_room_pause_s=0.5))
    _ask(requests, "a", 0.0)
    _ask(requests, "b", 2.8)
    requests.no_room(2.8)
    assert [key for key, _ in requests.due(3.0)] == ["a"]  # its deadline is earlier
    assert [key for key, _ in requests.due(3.3)] == ["a", "b"]


def test_only_a_peer_that_may_answer_need_hear_of_a_cancellation() -> None:
    requests = Requests[str](RetryPolicy(answer_within_s=3.0))
    _ask(requests, "sent", 0.0)
    _ask(requests, "unsent", 0.0, sent=False)
    _ask(requests, "of the peer before", 0.0)
    assert [requests.cancel(key) for key in ("sent", "unsent", "sent", "never asked")] == [
        True, False, False, False,
    ]  # fmt: skip
    requests.moved(1.0)
    assert not requests.cancel("of the peer before")
    assert len(requests) == 0
