"""The tuner on models of rates: against GA3C's rule, with noise, and beside another user."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from aclearn.config import TunerConfig
from tests.support.simulated_tuning import Run, hill

sys.path.append(str(Path(__file__).parents[4] / "benchmarks"))

import tuner_model


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.1])
def test_on_models_it_is_better_than_the_rule_of_ga3c_and_the_best_of_the_reference(
    noise: float,
) -> None:
    """Rows of the reference's table: mean of the second half, finally kept, in % of the best."""
    reference = {0.0: (95, 99), 0.05: (89, 95), 0.1: (85, 93)}[noise]
    results = tuner_model.compare(noise, 15, 2400.0, TunerConfig())
    means = {
        rule: (
            sum(r.second_half for r in found) / len(found),
            sum(r.final for r in found) / len(found),
        )
        for rule, found in results.items()
    }
    assert means["tuner"] >= reference
    assert means["tuner"][1] >= reference[1]
    assert means["tuner"][0] > means["ga3c"][0] + 6.0


@pytest.mark.parametrize(
    ("noise", "least", "least_share"), [(0.0, 99.0, 1.0), (0.05, 97.0, 0.85), (0.1, 95.0, 0.65)]
)
def test_by_default_it_keeps_nearly_the_best_of_a_hill_within_five_minutes(
    noise: float, least: float, least_share: float
) -> None:
    """8 × 8 settings; `noise` is that of a window of 20 s, more than one of the tuner has."""
    for start in ((1, 1), (2, 2), (4, 4), (8, 8)):
        finals = [r.final for r in tuner_model.hill_results(start, noise, 20, TunerConfig())]
        assert sum(finals) / 20 >= least
        assert sum(final >= 95.0 for final in finals) / 20 >= least_share


@pytest.mark.parametrize("start", [(1, 1), (4, 4)])
def test_it_converges_within_five_minutes_of_short_windows(start: tuple[int, int]) -> None:
    config = TunerConfig(every_s=3.0, settle_s=1.0)
    for seed in range(12):
        load = tuner_model.Workload((3, 2), 0.03, 3.0, random.Random(seed))
        result = tuner_model.run_tuner(load, start, 300.0, config, seed)
        assert result.final >= 95.0
        assert result.good_after_s < 300.0


@pytest.mark.parametrize(("start", "least"), [((1, 1), 95.5), ((4, 4), 92.5)])
def test_on_measured_rates_with_a_tenth_of_noise_it_keeps_a_good_setting_after_five_minutes(
    start: tuple[int, int], least: float
) -> None:
    config = TunerConfig(every_s=10.0, settle_s=1.0)
    results = tuner_model.measured_results(start, 0.1, 80, config)
    # 27 windows for 16 settings; what is kept at random would be at 90.1, the mean of the rates
    assert sum(r.final for r in results) / 80 >= least


@pytest.mark.parametrize("seed", range(5))
def test_it_adapts_to_another_user_of_the_machine_and_comes_back(seed: int) -> None:
    """For two minutes another user takes most of the machine, and another setting is the best."""
    noise, since, until = random.Random(seed), 300.0, 420.0

    def true_rate(counts, busy: bool) -> float:
        return 0.4 * hill((1, 1))(counts) if busy else hill((3, 2))(counts)

    def rate(counts) -> float:
        # of the half second of a sample: 2 % of a window of 3 s
        return true_rate(counts, since <= run.now < until) * (1.0 + noise.gauss(0.0, 0.05))

    run = Run(rate, every_s=3.0, settle_s=1.0, temperature=0.05)
    run.tuner._rng = random.Random(seed)

    def share_of_the_best(busy: bool) -> float:
        best = {"predictors": 1, "trainers": 1} if busy else {"predictors": 3, "trainers": 2}
        return true_rate(run.tuner.kept, busy) / true_rate(best, busy)

    def restarts_in(seconds: float) -> int:
        before = len(run.decisions)
        run.go_on(seconds)
        return [d.verdict for d in run.decisions[before:]].count("restarted")

    run.go_on(since)
    assert run.tuner.frozen
    assert share_of_the_best(busy=False) == 1.0
    assert share_of_the_best(busy=True) == 0.55  # the share without a restart of the search
    assert restarts_in(until - since) >= 1
    assert share_of_the_best(busy=True) >= 0.85
    assert restarts_in(180.0) >= 1
    assert share_of_the_best(busy=False) >= 0.85
    assert run.tuner.frozen
