"""The aggregator: rates, returns and wait shares by arithmetic."""

from __future__ import annotations

import json
import math

import pytest

from aclearn.metrics import METRIC_NAMES, MetricsAggregator
from tests.support.heartbeats import (
    Heartbeat,
    actor_heartbeat,
    ended_episodes,
    trainer_heartbeat,
)


def test_a_line_before_any_heartbeat_has_every_name_and_no_episode() -> None:
    line = MetricsAggregator(50.0).line(53.0)
    assert tuple(line) == METRIC_NAMES
    assert line["time_s"] == 3.0
    assert line["return_mean_100"] is None
    assert (line["env_steps"], line["dropped_steps"], line["wait_share"]) == (0, {}, {})
    assert (line["env_steps_per_s"], line["pps"], line["tps"]) == (0.0, 0.0, 0.0)


def test_a_line_is_json_without_nan_whatever_the_gauges_are() -> None:
    view = MetricsAggregator(0.0)
    gauges = {"loss_policy": math.nan, "loss_value": math.inf, "entropy": 1.5, "lag_max": 3.0}
    heartbeat = Heartbeat(gauges=gauges, **ended_episodes([7.0]))
    view.observe_heartbeat("trainer", "t", heartbeat, 1.0)
    line = json.loads(json.dumps(view.line(1.0), allow_nan=False))
    assert "loss_policy" not in line
    assert (line["entropy"], line["lag_max"], line["return_mean_100"]) == (1.5, 3.0, 7.0)


def test_gauges_of_other_roles_carry_their_name_and_never_hide_a_metric() -> None:
    view = MetricsAggregator(0.0)
    view.observe_heartbeat("trainer", "t", Heartbeat(gauges={"queue_fill": 0.5, "tps": 9e9}), 1.0)
    view.observe_heartbeat("predictor", "p", Heartbeat(gauges={"batch": 10.0}), 1.0)
    view.observe_heartbeat("predictor", "q", Heartbeat(gauges={"batch": 20.0}), 1.0)
    assert view.extra == {"queue_fill": 0.5, "predictor_batch": 15.0}
    assert view.line(1.0)["tps"] == 0.0


def test_a_maximum_of_several_processes_is_the_largest_one_that_a_process_reports() -> None:
    view = MetricsAggregator(0.0)
    for number, kl_max in enumerate((1.0, 40.0, 1.0, 1.0)):
        gauges = {"kl_max": kl_max, "kl_mean": kl_max / 10}
        view.observe_heartbeat("compressor", f"c{number}", Heartbeat(gauges=gauges), 1.0)
    view.observe_heartbeat("compressor", "c4", Heartbeat(gauges={"rung": 0.0}), 1.0)
    assert view.extra == {
        "compressor_kl_max": 40.0,
        "compressor_kl_mean": pytest.approx(1.075),
        "compressor_rung": 0.0,
    }


def test_a_counter_that_goes_back_within_a_process_is_no_negative_rate() -> None:
    view = MetricsAggregator(0.0)
    for tick, learned in enumerate((0, 100, 40, 60)):
        trainer_heartbeat(view, "t", float(tick), learned_steps=learned)
    assert view.line(3.0)["learned_steps_per_s"] == pytest.approx((100 + 20) / 3)


def test_rates_are_increments_over_the_window() -> None:
    view = MetricsAggregator(0.0)
    for tick in range(61):  # 30 s, two heartbeats a second
        now = tick / 2
        actor_heartbeat(view, "a", now, env_steps=50 * tick, predictions=60 * tick)
        actor_heartbeat(view, "b", now, env_steps=10 * tick, predictions=20 * tick)
        steps = 40 * tick
        trainer_heartbeat(
            view, "t", now, env_steps=steps, learned_steps=steps, updates=tick, seen_a=steps
        )
    line = view.line(30.0)
    assert line["env_steps_per_s"] == pytest.approx(120.0)
    assert line["learned_steps_per_s"] == pytest.approx(80.0)
    assert line["pps"] == pytest.approx(160.0)
    assert line["tps"] == pytest.approx(2.0)


def test_batches_are_the_training_rate_where_each_is_used_more_than_once() -> None:
    view = MetricsAggregator(0.0)
    for tick in range(11):
        trainer_heartbeat(view, "t", float(tick), updates=6 * tick, batches=3 * tick)
    line = view.line(10.0)
    assert (line["updates"], line["tps"]) == (60, pytest.approx(3.0))


def test_rates_follow_a_change_within_the_window_and_fall_to_zero_in_silence() -> None:
    view = MetricsAggregator(0.0)
    for tick in range(21):
        trainer_heartbeat(view, "t", float(tick), learned_steps=min(tick, 10) * 100)
    assert view.line(20.0)["learned_steps_per_s"] == 0.0
    trainer_heartbeat(view, "t", 21.0, learned_steps=1500)
    assert view.line(21.0)["learned_steps_per_s"] == pytest.approx(50.0)  # 500 in 10 s
    assert view.line(26.0)["learned_steps_per_s"] == pytest.approx(50.0)
    assert view.line(60.0)["learned_steps_per_s"] == 0.0


def test_a_restarted_actor_adds_to_the_rates_from_zero() -> None:
    view = MetricsAggregator(0.0)
    for tick in range(6):
        actor_heartbeat(view, "a", float(tick), env_steps=100 * tick, predictions=100 * tick)
    view.role_gone("a")
    for tick in range(6):
        actor_heartbeat(view, "a2", 5.0 + tick, env_steps=100 * tick, predictions=100 * tick)
        line = view.line(5.0 + tick)
        assert line["pps"] == pytest.approx(100.0)
        assert line["env_steps_per_s"] == pytest.approx(100.0)
    assert line["env_steps"] == 1000
    assert line["dropped_steps"] == {"actor_lost": 500}


def test_a_trainer_restarted_from_a_checkpoint_goes_back_without_negative_rates() -> None:
    view = MetricsAggregator(0.0)
    for tick in range(6):
        steps = 100 * tick
        actor_heartbeat(view, "a", float(tick), env_steps=steps)
        trainer_heartbeat(
            view, "t", float(tick), env_steps=steps, learned_steps=steps, seen_a=steps
        )
    view.role_gone("t")
    trainer_heartbeat(
        view,
        "t2",
        6.0,
        env_steps=200,
        learned_steps=200,
        seen_a=200,
        generation=1,
        policy_version=2,
    )
    line = view.line(6.0)
    assert (line["env_steps"], line["learned_steps"], line["in_flight_steps"]) == (500, 200, 300)
    assert (line["generation"], line["policy_version"]) == (1, 2)
    assert line["learned_steps_per_s"] == pytest.approx(500 / 6)
    assert line["env_steps_per_s"] == pytest.approx(500 / 6)


def test_a_ghost_of_a_replaced_trainer_is_ignored() -> None:
    view = MetricsAggregator(0.0)
    trainer_heartbeat(view, "t", 1.0, env_steps=100, learned_steps=100, generation=0)
    trainer_heartbeat(view, "t2", 2.0, env_steps=90, learned_steps=90, generation=1)
    trainer_heartbeat(view, "t", 3.0, env_steps=500, learned_steps=500, generation=0)
    line = view.line(3.0)
    assert (line["learned_steps"], line["generation"]) == (90, 1)


def test_a_silent_trainer_that_speaks_again_is_the_same_trainer() -> None:
    view = MetricsAggregator(0.0)
    trainer_heartbeat(view, "t", 0.0, env_steps=100, learned_steps=100)
    view.role_gone("t")
    trainer_heartbeat(view, "t", 8.0, env_steps=180, learned_steps=180)
    trainer_heartbeat(view, "t", 10.0, env_steps=200, learned_steps=200)
    line = view.line(10.0)
    assert line["learned_steps"] == 200
    assert line["learned_steps_per_s"] == pytest.approx(2.0)


def test_a_monitor_that_starts_in_mid_run_reports_no_burst() -> None:
    view = MetricsAggregator(0.0)
    actor_heartbeat(view, "a", 0.0, env_steps=1_000_000, predictions=1_000_000)
    trainer_heartbeat(
        view, "t", 0.1, env_steps=990_000, learned_steps=990_000, seen_a=990_000, updates=9000
    )
    actor_heartbeat(view, "b", 0.2, env_steps=500_000, predictions=500_000)
    actor_heartbeat(view, "a", 1.0, env_steps=1_000_100, predictions=1_000_100)
    line = view.line(1.0)
    assert line["env_steps"] == 1_500_100
    assert line["env_steps_per_s"] == pytest.approx(100.0)
    assert line["pps"] == pytest.approx(100.0)
    assert line["tps"] == 0.0


def test_the_return_is_the_mean_of_the_newest_hundred_episodes() -> None:
    view = MetricsAggregator(0.0)
    for number in range(130):
        heartbeat = Heartbeat({"episodes": number + 1}, **ended_episodes([float(number)]))
        view.observe_heartbeat("actor", "a", heartbeat, 1.0)
        if number == 3:
            assert view.line(1.0)["return_mean_100"] == 1.5
            assert view.line(1.0)["episodes_in_mean"] == 4
    line = view.line(2.0)
    assert line["return_mean_100"] == sum(range(30, 130)) / 100
    assert line["episodes"] == 130
    assert view.line(1.0)["episodes_in_mean"] == 100


def test_episodes_whose_heartbeat_went_missing_are_counted_by_the_counter() -> None:
    view = MetricsAggregator(0.0)
    view.observe_heartbeat("actor", "a", Heartbeat({"episodes": 1}, episode_returns=(1.0,)), 1.0)
    view.observe_heartbeat("actor", "a", Heartbeat({"episodes": 4}, episode_returns=(1.0,)), 2.0)
    view.role_gone("a")
    view.observe_heartbeat("actor", "a", Heartbeat({"episodes": 5}, episode_returns=(1.0,)), 4.0)
    view.observe_heartbeat("actor", "b", Heartbeat(episode_returns=(1.0, 2.0)), 5.0)
    assert view.line(5.0)["episodes"] == 7


def test_a_resumed_run_goes_on_with_its_time_and_episodes() -> None:
    view = MetricsAggregator(10.0, resume_from={"time_s": 120.5, "episodes": 40, "env_steps": 7})
    assert view.line(12.0)["time_s"] == 122.5
    # This actor lived through the older aggregator, which counted its first six episodes.
    view.observe_heartbeat(
        "actor", "a", Heartbeat({"episodes": 8}, episode_returns=(1.0, 2.0)), 13.0
    )
    view.observe_heartbeat("actor", "b", Heartbeat({"episodes": 1}, episode_returns=(3.0,)), 13.0)
    assert view.line(13.0)["episodes"] == 43


def test_episodes_answered_after_the_last_line_are_counted_by_the_next_monitor() -> None:
    first = MetricsAggregator(0.0)
    first.observe_heartbeat("actor", "a", Heartbeat({"episodes": 6}, episode_returns=(1.0,)), 1.0)
    line = first.line(1.0)
    first.observe_heartbeat("actor", "a", Heartbeat({"episodes": 7}, episode_returns=(1.0,)), 1.5)
    state = json.loads(json.dumps(first.state()))  # it is written before the line
    # the first answers an episode, and is killed before its next line
    second = MetricsAggregator(2.0, resume_from=line, state=state)
    second.observe_heartbeat("actor", "a", Heartbeat({"episodes": 8}, episode_returns=(1.0,)), 3.0)
    assert second.line(3.0)["episodes"] == 8
    with pytest.raises(ValueError, match="is no count"):
        MetricsAggregator(2.0, state={**state, "episodes_of": {"a": math.inf}})


def test_wait_shares_are_means_over_the_processes_of_a_role_within_the_window() -> None:
    view = MetricsAggregator(0.0)
    for tick in range(31):
        # Both have waited differently before the window: only the last 10 s count.
        old = min(tick, 20)
        new = max(0, tick - 20)
        first = {"actions": 0.5 * new, "total": float(tick)}
        second = {"actions": 1.0 * old, "unroll": 0.25 * new, "total": float(tick)}
        view.observe_heartbeat("actor", "a", Heartbeat(waits=first), float(tick))
        view.observe_heartbeat("actor", "b", Heartbeat(waits=second), float(tick))
    view.observe_heartbeat("trainer", "t", Heartbeat(waits={"queue": 1.0, "total": 4.0}), 30.0)
    share = view.line(30.0)["wait_share"]
    assert share["actor"] == pytest.approx({"actions": 0.25, "unroll": 0.125, "working": 0.625})
    assert share["trainer"] == pytest.approx({"queue": 0.25, "working": 0.75})
    view.role_gone("b")
    share = view.line(30.0)["wait_share"]
    assert share["actor"] == pytest.approx({"actions": 0.5, "working": 0.5})


def test_the_process_that_the_view_is_in_has_a_share_without_a_heartbeat() -> None:
    view = MetricsAggregator(0.0)
    for now, waited in ((1.0, 0.5), (3.0, 2.0)):
        view.observe_own_waits("monitor", {"messages": waited, "total": now}, now)
    share = view.line(3.0)["wait_share"]
    assert share == {"monitor": pytest.approx({"messages": 0.75, "working": 0.25})}


def test_waits_before_the_first_learned_batch_are_no_part_of_the_shares() -> None:
    view = MetricsAggregator(0.0)
    for tick in range(1, 10):
        now, waited = float(tick), min(float(tick), 6.0)
        waits = {"weights": waited, "total": now}
        view.observe_heartbeat("actor", "a", Heartbeat(waits=waits), now)
        # as resumed from a checkpoint: only this trainer's steps count
        trainer_heartbeat(view, "t", now, learned_steps=500 + 20 * max(0, tick - 6))
    # the window would reach back to the first heartbeat; the last wait ended with the sixth
    assert view.line(9.0)["wait_share"]["actor"] == pytest.approx(
        {"weights": 1 / 4, "working": 3 / 4}
    )


def test_seconds_by_part_are_sums_over_the_processes_of_a_role_that_never_fall() -> None:
    view = MetricsAggregator(0.0)
    view.observe_heartbeat("actor", "a", Heartbeat(parts={"encode": 1.0, "total": 3.0}), 1.0)
    view.observe_heartbeat("actor", "b", Heartbeat(parts={"encode": 0.5, "total": 2.0}), 1.0)
    view.observe_heartbeat("trainer", "t", Heartbeat(parts={"forward": 0.25, "total": 1.0}), 1.0)
    view.observe_heartbeat("actor", "a", Heartbeat(parts={"encode": 1.5, "total": 4.0}), 2.0)
    assert view.line(2.0)["part_seconds"] == {
        "actor": {"encode": 2.0, "total": 6.0},
        "trainer": {"forward": 0.25, "total": 1.0},
    }
    view.role_gone("a")
    view.observe_heartbeat("actor", "c", Heartbeat(parts={"encode": 0.125, "total": 0.5}), 3.0)
    assert view.line(3.0)["part_seconds"]["actor"] == {"encode": 2.125, "total": 6.5}


def test_the_memory_of_a_view_does_not_grow_with_the_heartbeats() -> None:
    view = MetricsAggregator(0.0)
    for tick in range(20_000):
        now = tick / 1000
        heartbeat = Heartbeat(
            {"env_steps": tick, "predictions": tick}, waits={"x": 0.0, "total": now}
        )
        view.observe_heartbeat("actor", "a", heartbeat, now)
    samples = view._env_steps_rate._samples, view._waits._samples["a"].timed
    assert all(len(each) <= 102 for each in samples)
    assert view.line(20.0)["pps"] == pytest.approx(1000.0, rel=0.02)
