"""Which of the measured settings is called the best."""

from __future__ import annotations

from aclearn.control.tuner.setting_stats import SettingStats


def test_a_worker_that_adds_half_a_percent_is_not_worth_it_whatever_was_measured_first() -> None:
    stats = SettingStats([8])
    # doubling must bring 1 %: from 4 to 8 it brings 0.5 %, and from 1 both bring ninefold
    for setting, rate in (((1,), 10.0), ((4,), 100.0), ((8,), 100.5)):
        for _ in range(3):
            stats.learn(setting, rate, 1.0)
    assert stats.best((1,)) == (4,)
    stats.unreachable.add((4,))
    assert stats.best((1,)) == (8,)
    assert SettingStats([8]).best((2,)) == (2,)
