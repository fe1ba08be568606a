from __future__ import annotations

import pytest

from aclearn.views import Progress, ProgressEstimate


def test_steps_to_go_are_divided_by_the_rate() -> None:
    estimate = ProgressEstimate({"max_env_steps": 1_000_000})
    progress = estimate.observe({"time_s": 100.0, "env_steps": 250_000, "env_steps_per_s": 2500.0})
    assert progress == Progress("250 k of 1.00 M steps", 0.25, 300.0, 300.0)
    assert progress.remaining() == "0:05:00 to go"


def test_updates_to_go_are_divided_by_the_rate_since_the_first_line() -> None:
    estimate = ProgressEstimate({"max_updates": 500.0})
    first = estimate.observe({"time_s": 50.0, "updates": 100})  # a resumed run starts at 100
    assert (first.fraction, first.remaining_s) == (0.2, None)
    second = estimate.observe({"time_s": 60.0, "updates": 120})
    assert (second.fraction, second.remaining_s) == (0.24, 190.0)  # 380 at 2 a second


def test_time_to_go_is_what_is_left() -> None:
    progress = ProgressEstimate({"max_wall_s": 60.0}).observe({"time_s": 45.0})
    assert progress == Progress("0:00:45 of 0:01:00", 0.75, 15.0, 15.0)


def test_a_steady_return_is_drawn_out_to_the_target() -> None:
    estimate = ProgressEstimate({"target_return": 18.0})
    for time_s in range(0, 101, 2):  # from -20 at 0.2 a second
        progress = estimate.observe({"time_s": time_s, "judged_return": -20.0 + 0.2 * time_s})
    assert progress.label == "return 0.0 of 18"
    assert progress.fraction == pytest.approx(20.0 / 38.0)
    assert progress.remaining_s == pytest.approx(18.0 / 0.2)
    assert progress.latest_s is None


def test_the_trend_forgets_the_flat_beginning() -> None:
    estimate = ProgressEstimate({"target_return": 10.0})
    for time_s in range(0, 301, 2):  # flat for 200 s, then 0.05 a second
        value = max(0.0, 0.05 * (time_s - 200))
        progress = estimate.observe({"time_s": time_s, "judged_return": value})
    assert progress.remaining_s == pytest.approx(5.0 / 0.05)


@pytest.mark.parametrize("slope", [0.0, -0.1, 0.001])
def test_a_return_that_does_not_get_there_has_no_remaining_time(slope: float) -> None:
    estimate = ProgressEstimate({"target_return": 18.0, "max_wall_s": 3600.0})
    for time_s in range(0, 101, 2):
        progress = estimate.observe({"time_s": time_s, "judged_return": slope * time_s})
    assert progress.remaining_s is None
    assert progress.latest_s == 3500.0
    assert progress.remaining() == "at most 0:58:20 to go"


def test_a_few_seconds_are_no_trend() -> None:
    estimate = ProgressEstimate({"target_return": 18.0})
    estimate.observe({"time_s": 0.0, "judged_return": 0.0})
    progress = estimate.observe({"time_s": 9.0, "judged_return": 9.0})
    assert progress.remaining_s is None
    assert progress.remaining() == "remaining time not known yet"


def test_before_the_first_episode_there_is_no_progress_towards_a_return() -> None:
    progress = ProgressEstimate({"target_return": 18.0}).observe(
        {"time_s": 3.0, "judged_return": None}
    )
    assert progress == Progress("return of 18, no mean yet", 0.0, None, None)


def test_a_return_at_the_target_is_the_end() -> None:
    progress = ProgressEstimate({"target_return": 18.0, "max_wall_s": 100.0}).observe(
        {"time_s": 3.0, "judged_return": 18.5}
    )
    assert (progress.fraction, progress.remaining_s) == (1.0, 0.0)


def test_a_run_that_goes_on_beyond_its_target_is_on_the_way_to_its_bound() -> None:
    goal = {"target_return": 18.0, "stop_at_target": False, "max_wall_s": 100.0}
    estimate = ProgressEstimate(goal)
    assert estimate.observe({"time_s": 1.0, "judged_return": 0.0}).label == "return 0.0 of 18"
    assert estimate.observe({"time_s": 25.0, "judged_return": 19.0}).fraction == 0.25


def test_the_earliest_bound_is_the_latest_end() -> None:
    goal = {"target_return": 18.0, "max_env_steps": 1000, "max_wall_s": 100.0}
    line = {"time_s": 20.0, "env_steps": 400, "env_steps_per_s": 20.0, "judged_return": 1.0}
    assert ProgressEstimate(goal).observe(line).latest_s == 30.0  # 600 steps at 20 a second


def test_without_a_goal_the_run_goes_on_until_it_is_stopped() -> None:
    progress = ProgressEstimate({"target_return": None}).observe({"time_s": 3.0})
    assert (progress.fraction, progress.remaining()) == (None, "runs until it is stopped")


def test_beyond_its_bound_a_run_is_whole() -> None:
    progress = ProgressEstimate({"max_env_steps": 100}).observe({"env_steps": 120})
    assert (progress.fraction, progress.remaining_s) == (1.0, 0.0)


def test_a_bound_that_nothing_moves_towards_has_no_remaining_time() -> None:
    progress = ProgressEstimate({"max_env_steps": 100}).observe({"env_steps": 20})
    assert (progress.fraction, progress.remaining_s) == (0.2, None)
