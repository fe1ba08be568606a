"""The tuner with rates of zero, jumping clocks, and counts that are not applied."""

from __future__ import annotations

import random

import pytest

from tests.support.simulated_tuning import Run, hill


def test_rates_that_are_all_zero_decide_nothing() -> None:
    run = Run(lambda counts: 0.0)
    run.go_on(200.0)
    assert {d.verdict for d in run.decisions} == {"idle"}
    assert all(counts == {"predictors": 1, "trainers": 1} for counts in run.path)
    run.rate = hill()
    run.go_on(600.0)
    assert run.tuner.kept == {"predictors": 3, "trainers": 2}


def test_a_rate_that_falls_to_zero_accepts_nothing() -> None:
    run = Run(hill())
    run.go_on(900.0)
    run.rate = lambda counts: 0.0
    run.go_on(200.0)
    after = [d for d in run.decisions if d.rate == 0.0]
    assert {d.verdict for d in after} <= {"suspect", "restarted", "idle"}
    assert [d.verdict for d in after].count("restarted") == 1
    assert after[-1].verdict == "idle"
    assert run.tuner.kept == {"predictors": 3, "trainers": 2}


class Yes(random.Random):
    """Accepts every change with a non-zero chance."""

    def random(self) -> float:
        return 0.0


def test_a_trial_in_which_nothing_is_counted_is_accepted_at_no_temperature() -> None:
    run = Run(lambda counts: 1000.0 if sum(counts.values()) == 2 else 0.0, temperature=1.0)
    run.tuner._rng = Yes()
    once = run.until("repeat")
    assert (once.rate, once.reason) == (0.0, "nothing was counted; measured again")
    given_up = run.until("given up")
    assert given_up.counts == once.counts
    assert (given_up.rate, given_up.reason) == (0.0, "nothing was counted; reverted")
    assert given_up.kept == run.tuner.propose() == {"predictors": 1, "trainers": 1}
    run.go_on(600.0)
    # neither from memory, nor is it tried again
    silent = [tuple(d.counts.values()) for d in run.decisions if d.rate == 0.0]
    assert sorted(silent) == [(1, 2), (1, 2), (2, 1), (2, 1)]
    assert all(d.kept == {"predictors": 1, "trainers": 1} for d in run.decisions)
    assert run.tuner.frozen


def test_a_trial_in_which_everything_stood_still_once_is_measured_again() -> None:
    run = Run(hill((1, 2)))
    run.until("kept")
    slow, run.rate = run.rate, lambda counts: 0.0
    stood_still = run.until("repeat")
    run.rate = slow
    after = [run.until("accepted")] if stood_still.counts["trainers"] == 2 else []
    run.go_on(600.0)
    assert run.tuner.kept == {"predictors": 1, "trainers": 2}
    assert "given up" not in {d.verdict for d in run.decisions + after}


@pytest.mark.parametrize("who", ["trainer", "another"])
def test_a_trial_of_which_a_role_dies_twice_is_given_up_before_its_restarts_are(who) -> None:
    run = Run(hill((1, 1)))
    run.until("kept")
    begins = run.now
    while run.tuner.propose() == run.tuner.kept:
        run.sample()
    trial, deaths = run.tuner.propose(), 0
    while run.tuner.propose() == trial and deaths < 10:
        run.go_on(4.0)  # it is running, and may be measured already
        deaths = run.deaths = deaths + 1
        run.incarnation = f"t{deaths}" if who == "trainer" else "t"
        run.sample()
    assert deaths == 2
    last = run.decisions[-1]
    assert (last.verdict, last.counts, last.kept) == ("given up", trial, run.tuner.kept)
    assert last.reason == "roles died of it, or changed their counts; reverted"
    assert run.now - begins < 60.0
    before = len(run.path)
    run.go_on(600.0)
    assert trial not in run.path[before:]
    assert [d.verdict for d in run.decisions if d.counts == trial].count("given up") == 1


@pytest.mark.parametrize("dies_again", [False, True])
def test_a_trial_is_accepted_by_a_whole_window_without_a_death(dies_again: bool) -> None:
    # more is always better, by so little that it takes a whole window to see
    run = Run(lambda counts: 1000.0 + 50.0 * sum(counts.values()))
    run.until("kept")
    while run.tuner.propose() == run.tuner.kept:
        run.sample()
    trial, kept = run.tuner.propose(), run.tuner.kept
    run.go_on(11.0)  # 2 s to settle and 9 of the 10 of its window
    run.deaths += 1
    [broken] = run.sample()
    assert (broken.verdict, broken.counts, broken.kept) == ("discarded", trial, kept)
    assert broken.reason == "a role died and was started again; measured again"
    run.go_on(11.0)
    assert run.decisions[-1] is broken  # it settles again, and a window of 9 s is not enough
    if dies_again:
        run.deaths += 1
        [last] = run.sample()
        assert (last.verdict, last.counts, last.kept) == ("given up", trial, kept)
    else:
        accepted = run.until("accepted")
        assert (accepted.counts, accepted.kept) == (trial, trial)
        assert accepted.window_s == pytest.approx(10.0, abs=0.5)


def test_a_role_that_dies_now_and_then_does_not_keep_the_kept_counts_from_being_measured() -> None:
    run = Run(hill((1, 1)))
    while len(run.decisions) < 2:
        run.go_on(7.5)  # less than a window
        run.deaths += 1
    assert [d.verdict for d in run.decisions] == ["baseline", "kept"]
    assert run.now < 40.0


def test_counts_that_were_silent_once_can_be_kept_when_they_run_all_the_same() -> None:
    run = Run(lambda counts: 1000.0 if sum(counts.values()) == 2 else 0.0)
    given_up = run.until("given up")
    run.rate, run.running = hill(), given_up.counts
    run.until("adopted")
    run.running = None
    run.go_on(600.0)
    assert run.tuner.kept == {"predictors": 3, "trainers": 2}


def test_a_silent_window_of_the_kept_counts_is_no_noise_however_noisy_it_is() -> None:
    # short windows: a silence is a dozen of them, and would leave nothing of the estimate
    run = Run(lambda counts: 1000.0, {"trainers": 1}, {"trainers": 1}, every_s=0.3, settle_s=0.0)
    run.until("kept")
    run.tuner._known._variance = 1.0
    run.rate = lambda counts: 0.0
    assert run.until("suspect").rate == 0.0
    assert run.tuner.kept_estimate.mean == pytest.approx(1000.0)
    run.rate = lambda counts: 1000.0
    run.go_on(30.0)
    assert run.tuner.kept_estimate.mean == pytest.approx(1000.0)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_discards_the_window_and_measures_again(jump_s: float) -> None:
    run = Run(hill((1, 1)))
    run.until("kept")
    run.go_on(5.0)
    run.now += jump_s
    [discarded] = run.sample()
    assert discarded.verdict == "discarded"
    assert "clock" in discarded.reason
    assert discarded.rate is None
    assert run.sample() == []
    run.go_on(300.0)
    # nothing of the jump is in any window, neither of the trials nor of what is kept
    after = [d for d in run.decisions if d.verdict in ("rejected", "kept")]
    assert {d.verdict: round(d.rate) for d in after} == {"rejected": 850, "kept": 1000}
    assert {d.rate for d in after} == {850.0, 1000.0}
    assert run.tuner.kept == {"predictors": 1, "trainers": 1}


@pytest.mark.parametrize(("gap_s", "breaks"), [(5.0, False), (5.5, True)])
def test_a_gap_up_to_the_bound_is_part_of_the_window(gap_s: float, breaks: bool) -> None:
    run = Run(lambda counts: 1000.0)
    run.until("kept")
    run.go_on(4.0)
    assert [d.verdict for d in run.sample(gap_s)] == (["discarded"] if breaks else [])


def test_a_counter_that_falls_discards_the_window() -> None:
    run = Run(hill((1, 1)))
    run.until("kept")
    run.go_on(5.0)
    run.counter = 0.0
    [discarded] = run.sample()
    assert discarded.verdict == "discarded"
    assert "started again" in discarded.reason
    assert min(d.rate for d in run.decisions if d.rate is not None) > 0.0


def test_a_run_too_short_for_a_window_decides_nothing() -> None:
    run = Run(hill())
    run.go_on(11.5)
    assert run.decisions == []
    assert run.tuner.rate is None
    assert run.tuner.kept == {"predictors": 1, "trainers": 1}


def test_counts_that_are_not_taken_over_are_given_up_and_not_tried_again() -> None:
    run = Run(hill())
    run.until("kept")
    run.running = {"predictors": 1, "trainers": 1}
    given_up = run.until("given up")
    assert given_up.kept == {"predictors": 1, "trainers": 1} != given_up.counts
    assert run.tuner.propose() == given_up.kept
    run.go_on(600.0)
    refused = [tuple(d.counts.values()) for d in run.decisions if d.verdict == "given up"]
    assert sorted(refused) == [(1, 2), (2, 1)]
    assert run.tuner.frozen


def test_counts_that_run_whatever_is_wanted_are_kept_in_the_end() -> None:
    run = Run(hill())
    run.running = {"predictors": 2, "trainers": 1}
    adopted = run.until("adopted")
    assert adopted.kept == {"predictors": 2, "trainers": 1}
    run.running = None
    run.go_on(600.0)
    assert run.tuner.kept == {"predictors": 3, "trainers": 2}


def test_counts_that_no_role_reports_are_waited_for() -> None:
    run = Run(hill())
    run.running = {"predictors": 1}
    run.go_on(100.0)
    assert {d.verdict for d in run.decisions} == {"idle"}
    run.running = None
    run.go_on(600.0)
    assert run.tuner.kept == {"predictors": 3, "trainers": 2}


def test_counts_that_change_in_a_window_discard_it() -> None:
    run = Run(hill())
    run.go_on(6.0)
    run.running = {"predictors": 4, "trainers": 1}
    [discarded] = run.sample()
    assert discarded.verdict == "discarded"
    assert "changed" in discarded.reason


@pytest.mark.parametrize("start", [0, 5, -1])
def test_a_start_outside_the_bounds_is_refused(start: int) -> None:
    with pytest.raises(ValueError, match=f"trainers: {start} is not within 1 and 4"):
        Run(hill(), {"trainers": start})
