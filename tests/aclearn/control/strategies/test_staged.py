"""The strategy `staged`: three stages by the slope of the return."""

from __future__ import annotations

import pytest

from aclearn.control.strategies.staged import Staged
from tests.support.simulated_compression import SimulatedRun


def slopes(time_s, rung, share):
    """Flat until 300, a rise until 900 with a short pause, flat, and a second rise at 2000."""
    if 300 <= time_s < 900 and not 500 <= time_s < 560:
        return {"return_slope_per_s": 0.02}
    return {"return_slope_per_s": 0.02 if 2000 <= time_s < 2100 else 0.001}


def test_each_stage_has_its_rung(tmp_path) -> None:
    run = SimulatedRun(
        tmp_path, lambda: Staged(exploration=0, improvement=2, convergence=1), slopes, rungs=3
    )
    run.go_on(2400.0)
    assert run.changes == [(300.0, 2), (1020.0, 1), (2000.0, 2), (2220.0, 1)]
    assert [line["cause"]["stage"] for line in run.log()] == [
        *("improvement", "convergence", "improvement", "convergence")
    ]
    assert run.log()[1]["cause"] == {
        "stage": "convergence",
        "return_slope_per_s": 0.001,
        "low_for_s": 120.0,
    }


def test_a_slope_between_the_bounds_keeps_the_stage(tmp_path) -> None:
    def world(time_s, rung, share):
        return {"return_slope_per_s": 0.02 if time_s == 100.0 else 0.007}  # bounds: 0.005 and 0.01

    run = SimulatedRun(tmp_path, Staged, world)
    run.go_on(2000.0)
    assert run.changes == [(100.0, 1)]


def test_the_stage_survives_the_monitor(tmp_path) -> None:
    run = SimulatedRun(tmp_path, Staged, slopes)
    run.go_on(1500.0)
    assert run.changes == [(300.0, 1), (1020.0, 0)]
    run.start_monitor()
    assert run.plugin.gauges() == {"strategy_rung": 0.0, "strategy_stage": 2.0}


def test_a_stage_begins_on_its_rung_though_the_run_begins_on_the_first(tmp_path) -> None:
    run = SimulatedRun(
        tmp_path, lambda: Staged(exploration=1), lambda *_: {"return_slope_per_s": 0.0}
    )
    run.go_on(60.0)
    assert run.changes == [(10.0, 1)]


def test_a_rung_that_is_not_on_the_ladder_is_a_fault() -> None:
    assert Staged(improvement=3, convergence=1).faults(3) == [
        "improvement: expected a rung from 0 to 2, got 3"
    ]
    with pytest.raises(ValueError, match="no such stage"):
        Staged().restore({"stage": "boredom"})
