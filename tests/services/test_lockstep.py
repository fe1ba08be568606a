"""Deterministic mode's own parts: which checkpoint is the best."""

from __future__ import annotations

from services.lockstep import BestSoFar


def test_the_best_needs_a_hundred_episodes_and_is_kept_until_a_better_one_comes() -> None:
    best = BestSoFar()
    told = [
        (updates, best.beaten_by(line, episodes_in_mean=episodes), best.mean_return)
        for updates, mean, episodes in [
            (0, None, 0),
            (10, 9.0, 99),  # not a hundred episodes yet
            (20, 5.0, 100),
            (519, 6.0, 100),  # better, but only 499 updates later
            (520, 5.0, 100),  # no better
            (521, 6.0, 100),
            (1021, 7.0, 100),
        ]
        if (line := {"return_mean_100": mean, "updates": updates})
    ]
    assert told == [
        (0, False, None),
        (10, False, None),
        (20, True, 5.0),
        (519, False, 5.0),
        (520, False, 5.0),
        (521, True, 6.0),
        (1021, True, 7.0),
    ]


def test_a_continued_run_keeps_the_best_that_it_had() -> None:
    best = BestSoFar(7.0)
    assert not best.beaten_by({"return_mean_100": 7.0, "updates": 3}, episodes_in_mean=100)
    assert best.beaten_by({"return_mean_100": 7.5, "updates": 3}, episodes_in_mean=100)
