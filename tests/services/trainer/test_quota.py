"""What the holders of one key can give a trainer."""

from __future__ import annotations

import pytest

from aclearn.errors import WireError
from aclearn.wire import AllowedKey
from services.trainer.quota import KeyQuota


def _key(**bounds) -> AllowedKey:
    return AllowedKey("p" * 40, "rack7", ["actor"], **bounds)


def test_without_a_key_or_a_bound_nothing_is_refused() -> None:
    quota = KeyQuota()
    for key in (None, _key()):
        for number in range(1000):
            quota.check_process(key, str(number), 0.0)
            quota.check_rate(key, 0.0)


def _taken(quota: KeyQuota, key: AllowedKey, now: float) -> bool:
    try:
        quota.check_rate(key, now)
    except WireError as error:
        assert error.reason == "quota" and "rack7 may send" in error.detail
        return False
    return True


@pytest.mark.parametrize("rate", [0.2, 3.0, 50.0])
def test_a_key_has_its_rate_and_two_seconds_of_it_at_once(rate: float) -> None:
    quota, key = KeyQuota(), _key(unrolls_per_s=rate)
    at_once = sum(_taken(quota, key, 0.0) for _ in range(1000))
    assert at_once == max(1, int(2 * rate))
    # in 100 s it sends ten times as often as it may; other keys are not touched
    sent = [_taken(quota, key, n / (10 * rate)) for n in range(1, int(1000 * rate) + 1)]
    assert sum(sent) == pytest.approx(100 * rate, abs=2)
    other = AllowedKey("q" * 40, "rack8", ["actor"], unrolls_per_s=1.0)
    quota.check_rate(other, 0.0)


def test_a_key_has_its_processes_and_a_place_is_free_5_s_after_one_was_heard_last() -> None:
    quota, key = KeyQuota(), _key(processes=2)
    quota.check_process(key, "a", 0.0)
    quota.check_process(key, "b", 1.0)
    quota.check_process(key, "a", 2.0)
    with pytest.raises(WireError, match="at most 2 processes"):
        quota.check_process(key, "c", 5.9)
    quota.check_process(key, "c", 6.1)  # b was heard 5.1 s ago
    with pytest.raises(WireError, match="at most 2 processes"):
        quota.check_process(key, "b", 6.5)
    quota.check_process(key, "a", 6.9)
