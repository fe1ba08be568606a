"""The strategy `linear_mix`: α = 1 − KL / zero_at, in steps."""

from __future__ import annotations

import pytest

from aclearn.control import SetMix
from aclearn.control.strategies.linear_mix import LinearMix
from tests.support.simulated_compression import SimulatedRun

KL = "compressor_kl_mean"


def test_the_share_falls_linearly_with_the_distance_and_rises_again(tmp_path) -> None:
    distances = {0: 0.0, 20: 0.25, 40: 0.5, 60: 3.0, 80: 0.9, 100: 0.0, 120: 0.0}

    def world(time_s, rung, share):
        return {KL: distances[int(time_s // 20) * 20]}

    run = SimulatedRun(tmp_path, LinearMix, world, dwell_s=5.0)
    run.go_on(120.0)
    assert run.changes == [
        (20.0, 0.75),
        (40.0, 0.5),
        (60.0, 0.0),
        (80.0, pytest.approx(0.1)),
        (100.0, 1.0),
    ]
    assert run.share == 1.0
    [directive] = run.look()
    assert (directive.to, directive.payload) == ("actor", SetMix(1.0))
    assert run.log()[0]["cause"] == {KL: 0.25, "zero_at": 1.0}
    assert run.plugin.gauges() == {"strategy_compressed_share": 1.0}


def test_a_small_change_is_left_out_but_not_one_to_an_end(tmp_path) -> None:
    values = iter([0.04, 0.1, 0.14, 0.06, 0.02, 0.98, 0.99, 1.0, 1.01])

    def world(time_s, rung, share):
        return {KL: next(values)}

    run = SimulatedRun(tmp_path, LinearMix, world, dwell_s=0.1)
    run.go_on(4.5)
    shares = [share for _, share in run.changes]
    # 0.96 is too near to 1, 0.86 and 0.94 to 0.9; 0.98 is far from it; 0 is an end
    assert shares == pytest.approx([0.9, 0.98, 0.02, 0.0])
