"""A whole run in this process whose metrics lines have every indicator."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.config import config_from_yaml
from aclearn.metrics.names import check_line_name
from services.roles import ROLES
from tests.support.system import check_line
from tests.support.toys import toy_indicator
from tests.support.whole_run import WholeRun

_OF_THE_COMPRESSOR = {f"compressor_kl_{name}" for name in ("mean", "variance", "max")}
_OF_THE_TRAINER = {
    *("rho_mean", "effective_sample_share", "clipped_rho_share", "clipped_c_share"),
    *("entropy", "lag_mean", "lag_max"),
}
_OF_EPISODES = {
    *("return_mean_100", "return_slope_per_s", "return_slope_per_step"),
    *("return_mean_original", "return_mean_compressed", "reward_gap"),
}
_MIXED = {"original_share": 0.5}
_TOY = f"{toy_indicator.__name__}:BestStreak"


@pytest.mark.parametrize("recorded", [False, True], ids=["estimated", "exact"])
def test_every_indicator_is_in_the_lines_and_each_name_is_known(tmp_path: Path, recorded) -> None:
    run = WholeRun(
        tmp_path,
        run={"max_updates": 100},
        actors={"processes": 2, "envs_per_group": 4, "behaviour_parameters": recorded} | _MIXED,
        compressor={"chain": ["int8", "onnx"], "every_s": 0.125, "fidelity_every": 1},
        monitor={"indicators": [{_TOY: {"least": 15.0}}], "return_window_s": 4.0},
    )
    run.run()
    divergence = "behaviour_kl" if recorded else "behaviour_kl_estimate"
    expected = _OF_THE_COMPRESSOR | _OF_THE_TRAINER | _OF_EPISODES | {divergence, "best_streak"}
    last = run.lines()[-1]  # the compressor has left by then; its last figures stay
    assert [name for name in sorted(expected) if not isinstance(last.get(name), float)] == []
    assert 0.0 <= last["compressor_kl_mean"] <= last["compressor_kl_max"] < 1.0
    assert 0.0 <= last[divergence] < 0.5 and last["rho_mean"] == pytest.approx(1.0, abs=0.5)
    gap = last["return_mean_original"] - last["return_mean_compressed"]
    assert last["reward_gap"] == pytest.approx(gap) and abs(gap) < 50.0
    assert last["best_streak"] >= 1.0  # an episode of 15 steps or more has ended
    check_line({name: value for name, value in last.items() if "streak" not in name})
    config = config_from_yaml((run.path / "config.yaml").read_text())
    roles = [spec.name for spec in ROLES.values() if spec.processes(config)]
    for name, value in last.items():
        if isinstance(value, int | float):
            own = toy_indicator.BestStreak.names
            check_line_name(name, config, key="test", roles=roles, own=own)
