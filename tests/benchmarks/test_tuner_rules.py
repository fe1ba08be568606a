"""The rule of GA3C's released code, defects included, and the sweep."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from aclearn.config import TunerConfig

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from tuner_rules import Ga3cRule, Sweep

TWO = {"predictors": 2, "trainers": 2}


class _Scripted:
    def __init__(self, steps: list[int]) -> None:
        self._steps = iter(steps)

    def choice(self, among: tuple[int, ...]) -> int:
        step = next(self._steps)
        assert step in among
        return step


def _rule(rng=None, most: int = 4) -> Ga3cRule:
    config = TunerConfig(every_s=10.0, settle_s=3.0)
    return Ga3cRule(TWO, dict.fromkeys(TWO, most), config, rng or random.Random(0))


def test_it_compares_bare_counts_and_never_runs_what_it_reverts_to() -> None:
    now, rule = 0.0, _rule(_Scripted([1, 0, 0, 0, -1, -1, 0, -1]))
    decided = []
    for seconds, counted in ((5.0, 100), (10.0, 150), (10.0, 120)):
        counts = rule.propose()
        assert rule.observe(now, 0, counts) is None
        now += seconds
        decided.append(rule.observe(now, counted, counts))
    # half a window first, so that the second is accepted though its rate is lower: 15 against 20
    assert [(d.verdict, d.rate) for d in decided] == [
        ("accepted", 20.0),
        ("accepted", 15.0),
        ("rejected", 12.0),
    ]
    # a step of zero for both counts is drawn again
    assert [d.counts for d in decided] == [
        {"predictors": 2, "trainers": 2},
        {"predictors": 1, "trainers": 2},
        {"predictors": 2, "trainers": 3},
    ]
    # from (1, 2), to which it reverts without running it, and at once a step further
    assert rule.kept == {"predictors": 1, "trainers": 2}
    assert rule.propose() == {"predictors": 1, "trainers": 3}


def _as_published(counted: list[int], draws: random.Random, most: int) -> list[tuple[int, ...]]:
    """`ThreadDynamicAdjustment.run` line by line: the counts of each window of 20 s."""
    trainer_count, predictor_count = 2, 2
    ran, temporal_training_count = [], counted[0]
    windows = iter(counted[1:])
    while True:
        old = (trainer_count, predictor_count)
        direction = [draws.choice((-1, 0, 1)), draws.choice((-1, 0, 1))]
        trainer_count = min(most, max(1, trainer_count - direction[1]))
        predictor_count = min(most, max(1, predictor_count - direction[0]))
        if (trainer_count, predictor_count) == old:
            continue
        old_count = temporal_training_count
        ran.append((predictor_count, trainer_count))
        try:
            temporal_training_count = next(windows)
        except StopIteration:
            return ran
        if temporal_training_count < old_count:
            trainer_count, predictor_count = old


def test_it_takes_the_steps_of_the_published_code() -> None:
    counts = random.Random(5)
    counted = [counts.randint(50, 150) for _ in range(300)]
    rule, ran, now = _rule(random.Random(11), most=8), [], 0.0
    for count in counted:
        wanted = rule.propose()
        rule.observe(now, 1000, wanted)
        now += 10.0
        decision = rule.observe(now, 1000 + count, wanted)
        assert decision.counts == wanted
        ran.append(tuple(rule.propose().values()))
    assert ran == _as_published(counted, random.Random(11), most=8)


def test_a_window_begins_when_the_roles_run_the_counts_and_anew_with_another_trainer() -> None:
    rule = _rule()
    other = {"predictors": 2, "trainers": 1}
    assert rule.observe(0.0, 0, other) is None
    assert rule.observe(4.0, 100, TWO, incarnation="a") is None
    assert rule.observe(8.0, 5, TWO, incarnation="b") is None
    assert rule.observe(12.0, 25, TWO, incarnation="b") is None
    decision = rule.observe(13.0, 35, TWO, incarnation="b")
    assert (decision.rate, decision.window_s) == (pytest.approx(30 / 5), 5.0)


def test_counts_that_are_not_taken_over_are_reverted_after_half_a_minute() -> None:
    rule = _rule()
    rule.observe(0.0, 0, TWO)
    rule.observe(5.0, 100, TWO)
    trial = rule.propose()
    assert rule.observe(6.0, 100, TWO) is None
    assert rule.observe(36.0, 100, TWO) is None
    decision = rule.observe(36.5, 100, TWO)
    assert (decision.verdict, decision.counts, decision.kept) == ("given up", trial, TWO)


def test_a_sweep_tries_each_setting_once_a_round() -> None:
    most = {"predictors": 3, "trainers": 2}
    config = TunerConfig(every_s=1.0, settle_s=0.0)
    rule = Sweep(dict.fromkeys(most, 1), most, config, random.Random(0))
    tried, now = [], 0.0
    while len(tried) < 18:
        now += 0.5
        if rule.observe(now, round(100 * now), rule.propose()):
            tried.append(tuple(rule.propose().values()))
    every = {(p, t) for p in (1, 2, 3) for t in (1, 2)}
    assert all(set(tried[i : i + 6]) == every for i in (0, 6, 12))
