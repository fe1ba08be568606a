"""The tuner: proposals, measurements and kept counts."""

from __future__ import annotations

import random

import pytest

from tests.support.simulated_tuning import Run, hill


@pytest.mark.parametrize("start", [1, 4])
def test_it_changes_one_count_at_a_time_at_most_doubled_and_freezes_at_the_top(start: int) -> None:
    run = Run(hill(), {"predictors": start, "trainers": start})
    while run.now < 600.0:
        run.sample()
        kept, trial = run.tuner.kept, run.tuner.propose()
        changed = [name for name in kept if trial[name] != kept[name]]
        assert len(changed) <= 1
        assert all(kept[n] // 2 <= trial[n] <= 2 * kept[n] for n in changed)
    assert run.tuner.kept == {"predictors": 3, "trainers": 2}
    assert run.tuner.frozen
    end = len(run.path)
    run.go_on(600.0)
    assert all(counts == run.tuner.kept for counts in run.path[end:])  # it only measures


def test_every_proposal_stays_within_the_bounds() -> None:
    run = Run(lambda counts: 1000.0 - counts["trainers"], temperature=1.0, cooling=1.0)
    run.go_on(3000.0)
    for name in ("predictors", "trainers"):
        assert {1, 2} <= {counts[name] for counts in run.path} <= {1, 2, 3, 4}


def test_a_rate_is_counted_between_the_ends_of_its_own_window_after_the_settling() -> None:
    calls = iter(range(10_000))

    def slow_start(counts) -> float:
        return 0.0 if next(calls) < 5 else 800.0  # 2.5 s of nothing while it settles

    run = Run(slow_start)
    first = run.until("baseline")
    assert (first.rate, first.window_s) == (800.0, 10.0)
    # the first rise of the counter shows that the counts are applied; then settle_s, every_s
    assert run.now == 3.0 + 2.0 + 10.0


def test_a_window_that_straddles_the_start_spoils_neither_the_baseline_nor_the_noise() -> None:
    def ramp(counts) -> float:
        return 0.0 if run.now <= 6.0 else 400.0 if run.now <= 13.5 else 1000.0

    run = Run(ramp)
    first, second = run.until("baseline"), run.until("baseline")
    # from 8.5 s, settle_s after the first rise at 6.5 s, to 18.5 s: half of it at 400
    assert (first.rate, second.rate) == (700.0, 1000.0)
    assert "+42.9% from the window before" in second.reason
    run.until("kept")
    # prior 0.05² of weight 1/2, then (0.3 / 0.7)² / 3, which counts as (3 · 0.05)², then 0
    assert run.tuner._known.noise == pytest.approx(((0.05**2 / 2 + 9 * 0.05**2) / 2.5) ** 0.5)
    run.go_on(600.0)
    after = run.decisions[2:]
    assert {d.baseline for d in after} == {1000.0}
    assert {d.verdict for d in after} == {"kept", "repeat", "rejected"}
    assert run.tuner.frozen
    assert run.tuner.kept == {"predictors": 1, "trainers": 1}


def test_a_trainer_that_was_started_again_is_measured_when_it_learns_again() -> None:
    run = Run(hill((1, 1)))
    run.until("kept")
    run.go_on(5.0)
    run.counter, run.rate = 0.0, lambda counts: 0.0
    [discarded] = run.sample()
    run.go_on(20.0)
    run.rate = hill((1, 1))
    run.go_on(300.0)
    rates = [d.rate for d in run.decisions[run.decisions.index(discarded) :] if d.rate is not None]
    assert min(rates) == pytest.approx(850.0)


def test_a_rejected_trial_does_not_become_the_baseline() -> None:
    """GA3C's first defect: the next trial would win against the rejected one's rate."""
    rates = {(1, 1): 1000.0, (2, 1): 500.0, (1, 2): 700.0}
    run = Run(lambda c: rates.get((c["predictors"], c["trainers"]), 100.0))
    rejected = run.until("rejected")
    assert rejected.counts != rejected.kept == {"predictors": 1, "trainers": 1}
    assert sorted(run.tuner.propose().values()) == [1, 2]
    assert run.tuner.propose() != rejected.counts
    run.go_on(300.0)
    assert run.tuner.kept == {"predictors": 1, "trainers": 1}
    assert {d.verdict for d in run.decisions} == {"baseline", "kept", "rejected"}
    assert all(d.baseline == pytest.approx(1000.0) for d in run.decisions)


def test_what_is_clearly_worse_is_seen_early_and_never_tried_again() -> None:
    run = Run(hill((1, 1)), temperature=0.0)
    run.go_on(2000.0)
    trials = [d for d in run.decisions if d.verdict == "rejected"]
    assert sorted(tuple(d.counts.values()) for d in trials) == [(1, 2), (2, 1)]
    half = Run(lambda c: 1000.0 if sum(c.values()) == 2 else 300.0)
    early = half.until("rejected")
    assert early.window_s < 10.0
    assert early.window_s >= 10.0 / 3
    assert "early" in early.reason


@pytest.mark.parametrize(("temperature", "chance"), [(0.1, 0.387), (0.05, 0.150)])
def test_a_loss_is_accepted_with_metropolis_probability(temperature: float, chance: float) -> None:
    accepted = 0
    for seed in range(400):
        rate = {1: 900.0, 2: 1000.0}
        most = {"trainers": 2}
        run = Run(lambda c, rate=rate: rate[c["trainers"]], most, most, temperature=temperature)
        run.tuner._rng = random.Random(seed)
        while not (run.decisions and run.decisions[-1].verdict in ("accepted", "rejected")):
            run.sample()
        accepted += run.decisions[-1].verdict == "accepted"
        assert run.tuner.temperature == pytest.approx(temperature * 0.85)
    # exp((-0.1 + 0.005) / temperature): half a percent is for the worker less; 4 sd of 400 draws
    assert accepted / 400 == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 400) ** 0.5)


def test_of_equals_the_smaller_count_is_kept() -> None:
    rate = {1: 900.0, 2: 1000.0, 3: 1000.0, 4: 1000.0}
    run = Run(lambda c: rate[c["trainers"]], {"trainers": 4}, temperature=0.05)
    run.go_on(900.0)
    assert run.tuner.kept == {"trainers": 2}


def test_the_best_has_two_windows_where_any_other_setting_has() -> None:
    run = Run(hill((1, 1)))
    run.until("baseline")
    assert run.tuner.best() == ({"predictors": 1, "trainers": 1}, 1000.0)
    # one lucky window of another setting is no better than two of this one
    run.tuner._known.learn((1, 1), 1000.0, 1.0)
    run.tuner._known.learn((2, 1), 2000.0, 1.0)
    assert run.tuner.best()[0] == {"predictors": 1, "trainers": 1}
    run.tuner._known.learn((2, 1), 2000.0, 1.0)
    assert run.tuner.best() == ({"predictors": 2, "trainers": 1}, 2000.0)


def test_a_hint_is_followed_first_but_every_neighbour_is_tried() -> None:
    first = {None: set(), "trainers": set()}
    for seed in range(20):
        for hint, seen in first.items():
            run = Run(hill())
            run.tuner._rng, run.hint = random.Random(seed), hint
            seen.add(tuple(run.until("accepted").counts.values()))
            run.go_on(200.0)
            assert run.tuner.kept == {"predictors": 3, "trainers": 2}
    assert first == {None: {(1, 2), (2, 1)}, "trainers": {(1, 2)}}


@pytest.mark.parametrize("factor", [0.5, 2.5])
def test_it_searches_again_when_the_rate_changes_twice_in_a_row_and_finds_the_new_best(
    factor,
) -> None:
    now_best, scale = [(3, 2)], [1.0]
    run = Run(lambda c: scale[0] * hill(now_best[0])(c), temperature=0.05)
    run.go_on(900.0)
    assert run.tuner.frozen
    now_best[0], scale[0] = (2, 1), factor
    restarted = run.until("restarted")
    assert [d.verdict for d in run.decisions[-2:]] == ["suspect", "restarted"]
    assert restarted.temperature == 0.05
    assert restarted.state == "searching"
    run.go_on(900.0)
    assert run.tuner.frozen
    assert run.tuner.kept == {"predictors": 2, "trainers": 1}


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_it_searches_again_from_the_stated_share_on_and_not_below(share: float) -> None:
    scale = [1.0]
    run = Run(lambda c: scale[0] * hill()(c), restart_search_share=share)
    run.go_on(900.0)
    assert run.tuner.frozen
    scale[0] = 1.0 - 0.9 * share
    run.go_on(300.0)
    assert run.tuner.frozen
    assert not {"suspect", "restarted"} & {d.verdict for d in run.decisions}
    scale[0] = 1.0 - 1.1 * share
    run.go_on(40.0)
    assert "restarted" in {d.verdict for d in run.decisions}


def test_each_trial_cools_once() -> None:
    run = Run(hill(), temperature=0.02)
    run.go_on(900.0)
    assert run.tuner.frozen
    trials = [d for d in run.decisions if d.verdict in ("accepted", "rejected")]
    assert [d.temperature for d in trials] == pytest.approx(
        [0.02 * 0.85 ** (n + 1) for n in range(len(trials))]
    )


def test_one_window_that_deviates_changes_nothing() -> None:
    scale = [1.0]
    run = Run(lambda c: scale[0] * hill()(c))
    run.go_on(900.0)
    baseline = run.tuner.best()[1]
    scale[0] = 0.3
    run.until("suspect")
    scale[0] = 1.0
    run.go_on(100.0)
    assert run.tuner.frozen
    assert run.tuner.best()[1] == pytest.approx(baseline, rel=1e-3)
    assert "restarted" not in {d.verdict for d in run.decisions}


def test_a_slow_change_adds_up_to_a_restart() -> None:
    scale = [1.0]
    run = Run(lambda c: scale[0] * hill()(c))
    run.go_on(900.0)
    for _ in range(400):
        scale[0] *= 0.999
        run.go_on(10.0)
    assert "restarted" in {d.verdict for d in run.decisions}


def test_a_single_possible_setting_is_only_watched() -> None:
    run = Run(lambda counts: 500.0, {"trainers": 1}, {"trainers": 1})
    run.go_on(200.0)
    assert run.tuner.frozen
    run.rate = lambda counts: 100.0
    run.until("restarted")
    run.go_on(200.0)
    assert run.tuner.frozen
