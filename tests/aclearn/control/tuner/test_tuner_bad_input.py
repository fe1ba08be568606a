"""The tuner with silence, deaths, jumping clocks, and counts that are not applied."""

from __future__ import annotations

import random

import pytest

from tests.support.simulated_tuning import Run, hill

ONE = {"predictors": 1, "trainers": 1}
BEST = {"predictors": 3, "trainers": 2}


def _in_a_trial(rate, **changes) -> Run:
    run = Run(rate, **changes)
    run.until("kept")
    return run


@pytest.mark.parametrize(
    "silent",
    [
        {"rate": lambda counts: 0.0},
        {"running": {"predictors": 1}},  # trainers have yet to report theirs
        {"running": {"predictors": 5, "trainers": 1}},  # out of bounds
    ],
)
def test_a_run_that_cannot_be_measured_is_waited_for(silent: dict) -> None:
    run = Run(hill())
    vars(run).update(silent)
    run.go_on(200.0)
    assert {d.verdict for d in run.decisions} == {"idle"}
    assert all(counts == ONE for counts in run.path)
    run.rate, run.running = hill(), None
    run.go_on(600.0)
    assert run.tuner.kept == BEST


def test_a_silence_of_the_kept_counts_changes_nothing() -> None:
    run = Run(hill())
    run.go_on(900.0)
    run.rate, before = lambda counts: 0.0, len(run.decisions)
    run.go_on(200.0)
    assert {d.verdict for d in run.decisions[before:]} <= {"suspect", "discarded", "idle"}
    assert run.decisions[-1].verdict == "idle"
    run.rate = hill()
    run.go_on(100.0)
    assert run.tuner.frozen
    assert run.tuner.best() == (BEST, pytest.approx(1000.0))


class Yes(random.Random):
    """Accepts every change with a non-zero chance."""

    def random(self) -> float:
        return 0.0


def test_a_trial_in_which_nothing_is_counted_is_accepted_at_no_temperature() -> None:
    run = Run(lambda counts: 1000.0 if counts == ONE else 0.0, temperature=1.0)
    run.tuner._rng = Yes()
    # both neighbours: 10 s settle and are silent for 5.5 s
    for _ in range(2):
        given_up = run.until("given up")
        assert given_up.reason == "nothing was counted for 30 s; reverted"
        assert given_up.counts != given_up.kept == run.tuner.kept == ONE
    run.go_on(600.0)
    assert run.tuner.frozen
    assert [d.verdict for d in run.decisions].count("given up") == 2  # neither is tried again


def test_a_trial_in_which_everything_stood_still_once_is_measured_again() -> None:
    run = _in_a_trial(hill((1, 2)))
    slow, run.rate = run.rate, lambda counts: 0.0
    assert run.until("discarded").reason.startswith("nothing was counted for 5")
    run.rate = slow
    run.go_on(600.0)
    assert run.tuner.kept == {"predictors": 1, "trainers": 2}
    assert "given up" not in {d.verdict for d in run.decisions}


@pytest.mark.parametrize("who", ["trainer", "another"])
def test_a_trial_of_which_a_role_dies_twice_is_given_up_before_its_restarts_are(who) -> None:
    run = _in_a_trial(hill((1, 1)))
    begins, trial, deaths = run.now, run.tuner.propose(), 0
    assert trial != run.tuner.kept
    while run.tuner.propose() == trial and deaths < 10:
        run.go_on(4.0)  # it is running, and may be measured already
        deaths = run.deaths = deaths + 1
        run.incarnation = f"t{deaths}" if who == "trainer" else "t"
        run.sample()
    last = run.decisions[-1]
    assert (deaths, last.verdict, last.counts) == (2, "given up", trial)
    assert last.reason == f"{'the trainer' if who == 'trainer' else 'a role died and'} " + (
        "was started again, twice; reverted"
    )
    assert run.now - begins < 60.0
    before = len(run.path)
    run.go_on(600.0)
    assert trial not in run.path[before:]


@pytest.mark.parametrize("dies_again", [False, True])
def test_a_trial_is_accepted_by_a_whole_window_without_a_death(dies_again: bool) -> None:
    # more is always better, by so little that it takes a whole window to see
    run = _in_a_trial(lambda counts: 1000.0 + 50.0 * sum(counts.values()))
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


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_discards_the_window_and_measures_again(jump_s: float) -> None:
    run = _in_a_trial(hill((1, 1)))
    run.go_on(5.0)
    run.now += jump_s
    [discarded] = run.sample()
    assert (discarded.verdict, discarded.rate) == ("discarded", None)
    assert "clock" in discarded.reason
    assert run.sample() == []
    run.go_on(300.0)
    # nothing of the jump is in any window, neither of the trials nor of what is kept
    after = {(d.verdict, d.rate) for d in run.decisions if d.verdict in ("rejected", "kept")}
    assert after == {("rejected", 850.0), ("kept", 1000.0)}
    assert run.tuner.kept == ONE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"counter": 0.0}, "the trainer was started again"),
        ({"incarnation": "u"}, "the trainer was started again"),
        ({"deaths": 1}, "a role died and was started again"),
        ({"running": {"predictors": 4, "trainers": 1}}, "the counts changed while they were"),
    ],
)
def test_what_breaks_a_window_discards_it(change: dict, words: str) -> None:
    run = _in_a_trial(hill((1, 1)))
    run.go_on(3.0)
    vars(run).update(change)
    [discarded] = run.sample()
    assert (discarded.verdict, discarded.rate) == ("discarded", None)
    assert discarded.reason.startswith(words)
    run.running = None
    run.go_on(300.0)
    assert min(d.rate for d in run.decisions if d.rate is not None) == pytest.approx(850.0)


@pytest.mark.parametrize(("gap_s", "breaks"), [(5.0, False), (5.5, True)])
def test_a_gap_up_to_half_a_window_is_part_of_it(gap_s: float, breaks: bool) -> None:
    run = _in_a_trial(lambda counts: 1000.0)
    run.go_on(4.0)
    assert [d.verdict for d in run.sample(gap_s)] == (["discarded"] if breaks else [])


def test_a_run_too_short_for_a_window_decides_nothing() -> None:
    run = Run(hill())
    run.go_on(11.5)
    assert run.decisions == []
    assert run.tuner.kept == ONE


def test_counts_that_are_not_taken_over_are_given_up_and_not_tried_again() -> None:
    run = _in_a_trial(hill())
    run.running = ONE
    given_up = run.until("given up")
    assert given_up.reason == f"the roles run {ONE} after 30 s; reverted"
    assert run.tuner.propose() == given_up.kept == ONE != given_up.counts
    run.go_on(600.0)
    refused = [tuple(d.counts.values()) for d in run.decisions if d.verdict == "given up"]
    assert sorted(refused) == [(1, 2), (2, 1)]
    assert run.tuner.frozen


def test_counts_that_run_whatever_is_wanted_are_kept_in_the_end_also_silent_ones() -> None:
    run = Run(lambda counts: 1000.0 if counts == ONE else 0.0)
    given_up = run.until("given up")
    run.rate, run.running = hill(), given_up.counts
    adopted = run.until("adopted")
    assert adopted.kept == given_up.counts
    run.running = None
    run.go_on(600.0)
    assert run.tuner.kept == BEST


@pytest.mark.parametrize("start", [0, 5, -1])
def test_a_start_outside_the_bounds_is_refused(start: int) -> None:
    with pytest.raises(ValueError, match=f"trainers: {start} is not within 1 and 4"):
        Run(hill(), {"trainers": start})
