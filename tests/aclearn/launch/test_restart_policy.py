from __future__ import annotations

import pytest

from aclearn.launch import RestartPolicy


def test_the_delay_doubles_from_the_first_to_the_ceiling() -> None:
    budget = RestartPolicy(10, 300.0, 0.5, 3.0)
    assert [budget.failed(now) for now in (0.0, 1.0, 2.0, 3.0, 4.0)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_the_budget_is_spent_by_one_failure_more_than_the_restarts_allowed() -> None:
    budget = RestartPolicy(2, 100.0, 1.0, 8.0)
    assert [budget.failed(now) for now in (0.0, 10.0, 20.0)] == [1.0, 2.0, None]


def test_a_budget_of_zero_allows_no_restart() -> None:
    assert RestartPolicy(0, 100.0, 1.0, 8.0).failed(0.0) is None


def test_failures_older_than_the_window_count_neither_for_the_budget_nor_for_the_delay() -> None:
    budget = RestartPolicy(2, 100.0, 1.0, 8.0)
    assert budget.failed(0.0) == 1.0
    assert budget.failed(50.0) == 2.0
    assert budget.failed(100.0) == 2.0  # the one at 0 is exactly as old as the window: it is out
    assert budget.failed(120.0) is None  # 50, 100 and 120
    assert budget.failed(500.0) == 1.0


def test_slow_steady_failures_are_restarted_for_ever_at_the_first_delay() -> None:
    budget = RestartPolicy(1, 10.0, 0.5, 8.0)
    assert {budget.failed(11.0 * index) for index in range(1000)} == {0.5}


def test_a_long_row_of_failures_stays_at_the_ceiling_without_overflow() -> None:
    budget = RestartPolicy(5000, 1e9, 0.5, 10.0)
    delays = [budget.failed(float(index)) for index in range(3000)]
    assert delays[-1] == 10.0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((-1, 10.0, 0.1, 1.0), "max_restarts"),
        ((1, 0.0, 0.1, 1.0), "window_s"),
        ((1, 10.0, 2.0, 1.0), "backoff_first_s"),
        ((1, 10.0, -0.1, 1.0), "backoff_first_s"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_name(
    arguments: tuple[int, float, float, float], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        RestartPolicy(*arguments)
