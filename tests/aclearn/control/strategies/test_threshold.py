"""The strategy `threshold`, and `reward_gap` which is one: up at once, down by trials."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.control.strategies.reward_gap import RewardGap
from aclearn.control.strategies.threshold import Threshold
from aclearn.metrics.indicators import Episode, RunSample
from aclearn.metrics.indicators import RewardGap as MeasuredGap
from tests.support.simulated_compression import SimulatedRun

KL = "compressor_kl_max"


def faulty(begin: float, end: float, bad_below: int = 1):
    """Rungs below `bad_below` are far from the original between two times."""

    def world(time_s, rung, share):
        return {KL: 20.0 if begin <= time_s < end and rung < bad_below else 0.1}

    return world


def test_a_fault_is_followed_by_the_faithful_rung_and_its_end_by_the_return(tmp_path) -> None:
    run = SimulatedRun(tmp_path, Threshold, faulty(100.0, 135.0))
    run.go_on(99.0)
    assert run.changes == []
    run.go_on(400.0)
    # noticed in the next line; 30 s of low values, from a dwell of 10 s after the change on, allow
    # the return, and by then the fault is gone
    assert run.changes == [(100.0, 1), (140.0, 0)]
    first, second, passed = run.log()
    assert first["cause"] == {KL: 20.0, "epsilon": 14.0}
    assert second["cause"] == {KL: 0.1, "below": 7.0, "for_s": 30.0}
    assert [line["rung"] for line in (first, second, passed)] == [1, 0, 0]
    assert passed["state"] == {"wait_s": 30.0, "failed": -1}  # the trial held
    assert run.notes[0] == f"strategy s: rung 0 → 1 ({KL} 20, epsilon 14)"


def test_a_fault_that_stays_is_tried_ever_more_rarely(tmp_path) -> None:
    run = SimulatedRun(tmp_path, Threshold, faulty(0.0, 1e9))
    run.go_on(2800.0)
    on_trial = [time_s for time_s, rung in run.changes if rung == 0]
    # a trial lasts for the dwell of 10 s; the faithful rung for another one and the wait
    waits = [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
    expected, time_s = [], 10.0
    for wait in waits:
        expected.append(time_s + 10.0 + wait)
        time_s = expected[-1] + 10.0
    assert on_trial == expected
    before = len(run.changes)
    run.go_on(6100.0)
    assert len(run.changes) - before <= 2 * 10  # one trial in 620 s


def test_of_three_rungs_the_one_that_holds_is_found(tmp_path) -> None:
    run = SimulatedRun(tmp_path, Threshold, faulty(50.0, 1000.0, bad_below=2), rungs=3)
    run.go_on(80.0)
    assert run.changes == [(50.0, 1), (60.0, 2)]
    run.go_on(940.0)
    assert min(rung for _, rung in run.changes) == 1  # rung 0 was never tried in the fault
    run.go_on(1500.0)
    assert run.changes[-1][1] == 0


def test_between_the_two_bounds_nothing_changes(tmp_path) -> None:
    def world(time_s, rung, share):
        between = 7.0 if int(time_s) % 2 else 13.9
        return {KL: 15.0 if time_s == 500.0 else between}

    run = SimulatedRun(tmp_path, Threshold, world)
    run.go_on(2000.0)
    assert run.changes == [(500.0, 1)]


def test_the_low_figure_must_last_without_a_break(tmp_path) -> None:
    # high once, then low except for one line in 25 s; in between alternately without the indicator
    def world(time_s, rung, share):
        if rung == 0:
            return {KL: 15.0}
        if time_s % 50.0 == 0.0:
            return {KL: 10.0}
        return {} if time_s % 25.0 == 0.0 else {KL: 0.0}

    run = SimulatedRun(tmp_path, Threshold, world)
    run.go_on(1000.0)
    assert run.changes == [(10.0, 1)]


def test_the_top_rung_stays_however_high_the_figure_is(tmp_path) -> None:
    run = SimulatedRun(tmp_path, Threshold, lambda *_: {KL: 99.0}, rungs=3)
    run.go_on(1000.0)
    assert run.changes == [(10.0, 1), (20.0, 2)]


def test_figures_of_another_rung_are_ignored(tmp_path) -> None:
    # the compressor never applies the first directive: its metrics stay those of rung 0
    run = SimulatedRun(tmp_path, Threshold, lambda *_: {KL: 20.0, "compressor_rung": 0.0}, rungs=3)
    run.go_on(1000.0)
    assert run.changes == [(10.0, 1)]


def test_the_reward_gap_moves_to_a_lower_sparsity(tmp_path) -> None:
    def world(time_s, rung, share):
        return {"reward_gap": 12.0 if rung == 0 and time_s >= 100.0 else 1.0}

    run = SimulatedRun(tmp_path, RewardGap, world, rungs=3, dwell_s=60.0)
    run.go_on(120.0)
    assert run.changes == [(100.0, 1)]
    assert run.log()[0]["cause"] == {"reward_gap": 12.0, "epsilon": 10.0}


def test_without_a_compressed_policy_the_gap_is_one_of_the_past(tmp_path) -> None:
    # on the last rung nothing compressed plays, and the figure stays as it was
    def world(time_s, rung, share):
        return {"reward_gap": 12.0 if time_s < 300.0 else 0.0, "compressed_share": 1.0 - rung}

    run = SimulatedRun(tmp_path, lambda: RewardGap(back_after_s=100.0), world, dwell_s=60.0)
    run.go_on(700.0)
    # the second trial waits twice as long
    assert run.changes == [(60.0, 1), (220.0, 0), (280.0, 1), (540.0, 0)]


def test_a_replaced_policy_is_no_reason_to_try_a_sparser_one(tmp_path) -> None:
    # rung 0 plays 12 points worse; from 200 s on compressor.max_kl replaces rung 1 by the original
    def world(time_s, rung, share):
        replaced = rung == 1 and time_s >= 200.0
        return {
            "reward_gap": 12.0 if rung == 0 else None if replaced else 8.0,
            "compressed_share": 1.0 - replaced,
            "compressor_compressed": 1.0 - replaced,
        }

    run = SimulatedRun(tmp_path, lambda: RewardGap(back_after_s=100.0), world, rungs=3)
    run.go_on(2000.0)
    assert run.changes == [(10.0, 1)]


@pytest.mark.parametrize("every_s", [3.0, 12.0])
def test_of_figure_7s_ladder_the_reward_gap_finds_the_rung_that_plays_as_well(
    tmp_path, every_s: float
) -> None:
    # sparsity 0.5 loses 15 points, 0.2 none; one episode in three is the original's
    rng, indicator, next_s = np.random.default_rng(1), MeasuredGap(60.0), 0.0

    def world(time_s, rung, share):
        nonlocal next_s
        episodes = []
        while next_s <= time_s:
            original = rung == 2 or rng.random() < 1 / 3
            return_ = 10.0 + 3.0 * rng.normal() - 15.0 * (rung == 0 and not original)
            episodes.append(Episode(return_, "original" if original else "compressed"))
            next_s += every_s
        line = {"time_s": time_s, "env_steps": int(100 * time_s), "compressor_rung": float(rung)}
        figures = indicator.observe(RunSample(line, episodes))
        return {**figures, "compressed_share": 0.0 if rung == 2 else 2 / 3}

    run = SimulatedRun(
        tmp_path, lambda: RewardGap(back_after_s=300.0), world, rungs=3, dwell_s=60.0
    )
    run.go_on(3000.0)
    rungs = [rung for _, rung in run.changes]
    assert len(rungs) >= 3 and rungs == [1, 0] * (len(rungs) // 2) + [1] * (len(rungs) % 2)


@pytest.mark.parametrize("wait_s", [1.0, 1e9])
def test_a_restored_wait_stays_within_the_configured_bounds(wait_s) -> None:
    threshold = Threshold(back_after_s=30.0, back_after_most_s=100.0)
    threshold.restore({"wait_s": wait_s, "failed": 0})
    assert threshold.state()["wait_s"] == min(max(wait_s, 30.0), 100.0)


def test_a_policy_that_plays_nothing_has_no_gap(tmp_path) -> None:
    # the share of the compressed policy is 0, by another strategy
    shares = {"compressed_share": 0.0, "actor_compressed_share": 0.0, "compressor_compressed": 1.0}

    def world(time_s, rung, share):
        return {"reward_gap": 12.0, "actor_compressed_share": 1.0} if time_s < 20.0 else shares

    run = SimulatedRun(tmp_path, lambda: RewardGap(back_after_s=100.0), world, rungs=3)
    run.go_on(700.0)
    assert run.changes == [(10.0, 1)]
