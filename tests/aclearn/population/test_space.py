"""Ranges of hyper-parameters."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.population import Parameter, SearchSpace


def test_a_range_above_zero_is_logarithmic_and_others_are_linear() -> None:
    rate = Parameter("optimiser.learning_rate", 1e-5, 1e-1)
    assert rate.at(0.5) == pytest.approx(1e-3)
    assert rate.share_of(1e-4) == pytest.approx(0.25)
    assert Parameter("loss.entropy_cost", 0.0, 0.2).at(0.25) == pytest.approx(0.05)


@pytest.mark.parametrize(("share", "value"), [(-1.0, 2.0), (0.0, 2.0), (1.0, 9.0), (7.0, 9.0)])
def test_values_never_leave_their_range(share: float, value: float) -> None:
    assert Parameter("trainer.epochs", 2, 9, whole=True).at(share) == value


def test_a_whole_number_changes_by_one_at_least_and_stays_whole() -> None:
    epochs = Parameter("trainer.epochs", 1, 30, whole=True)
    assert [epochs.times(2, factor) for factor in (0.8, 1.2)] == [1, 3]
    assert epochs.times(10, 1.26) == 13
    assert epochs.times(1, 0.8) == 1
    assert epochs.times(29, 1.2) == 30


def test_drawn_values_are_uniform_on_their_scale() -> None:
    space = SearchSpace.of([Parameter("a", 1e-4, 1.0)])
    rng = np.random.default_rng(0)
    decades = np.floor(-np.log10([space.drawn(rng)["a"] for _ in range(4000)]))
    counts = np.bincount(decades.astype(int), minlength=4)
    assert counts.min() > 900  # 1000 in each of four decades


def test_values_beyond_their_range_or_of_other_keys_are_faults() -> None:
    space = SearchSpace.of([Parameter("a", 1.0, 2.0)])
    assert list(space.faults({"a": 1.5})) == []
    assert "from 1 to 2, got 3" in next(space.faults({"a": 3.0}))
    assert "expected values of ['a'], got ['b']" in next(space.faults({"b": 1.5}))
