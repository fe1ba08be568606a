"""Properties of every strategy: the dwell, no reaction to missing numbers, one log."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aclearn.control import Decision, SetChain, Strategy
from aclearn.control.strategies.bandit import Bandit
from aclearn.control.strategies.linear_mix import LinearMix
from aclearn.control.strategies.reward_gap import RewardGap
from aclearn.control.strategies.staged import Staged
from aclearn.control.strategies.threshold import Threshold
from tests.support.simulated_compression import SimulatedRun, indicators

#: Strategies that decide as fast as they can, and their indicator.
EAGER: dict[str, tuple[Callable[[], Strategy], str]] = {
    "threshold": (lambda: Threshold(back_after_s=0.5), "compressor_kl_max"),
    "reward_gap": (lambda: RewardGap(back_after_s=0.5), "reward_gap"),
    "linear_mix": (LinearMix, "compressor_kl_mean"),
    "staged": (lambda: Staged(calm_s=0.5), "return_slope_per_s"),
    "bandit": (lambda: Bandit(every_s=0.5, window=5), "return_mean_100"),
}
NO_NUMBER = [None, float("nan"), float("inf"), float("-inf"), "14", True, [20.0]]
each_strategy = pytest.mark.parametrize("name", EAGER)


@each_strategy
@given(
    values=st.lists(st.one_of(st.sampled_from(NO_NUMBER), st.floats(0.0, 40.0)), max_size=60),
    dwell_s=st.sampled_from([0.5, 3.0, 7.0]),
)
def test_it_changes_nothing_before_its_dwell_is_over(
    tmp_path_factory, name: str, values: list, dwell_s: float
) -> None:
    make, figure = EAGER[name]
    given_values = iter(values)
    run = SimulatedRun(
        tmp_path_factory.mktemp("run"),
        make,
        lambda *_: {figure: next(given_values)},
        rungs=3,
        dwell_s=dwell_s,
    )
    run.go_on(0.5 * len(values))
    times = [0.0, *(time_s for time_s, _ in run.changes)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert all(gap >= dwell_s for gap in gaps)
    top = 1.0 if name == "linear_mix" else 2
    assert all(0 <= setting <= top for _, setting in run.changes)
    # the log has each change, in order, with numbers that caused it
    changes, before = [], 1.0 if name == "linear_mix" else 0
    for line in run.log():
        setting = line["compressed_share" if name == "linear_mix" else "rung"]
        if setting != before:
            assert line["cause"]
            changes.append((line["time_s"], setting))
        before = setting
    assert changes == run.changes


@each_strategy
@pytest.mark.parametrize("value", ["missing", *NO_NUMBER])
def test_without_its_figure_it_decides_nothing(tmp_path, name: str, value) -> None:
    make, figure = EAGER[name]
    line = {} if value == "missing" else {figure: value}
    run = SimulatedRun(tmp_path, make, lambda *_: line, dwell_s=0.5)
    run.go_on(50.0)
    assert run.changes == [] and run.log() == []


@each_strategy
def test_it_names_the_figure_that_it_follows(name: str) -> None:
    make, figure = EAGER[name]
    assert make().indicators == (figure,)


def test_a_killed_monitor_goes_on_from_a_decision_that_no_role_had_heard_of(tmp_path) -> None:
    kl = {"compressor_kl_max": 0.0}
    run = SimulatedRun(tmp_path, Threshold, lambda *_: kl, rungs=3)
    run.go_on(50.0)
    kl["compressor_kl_max"] = 20.0
    run.plugin.observe(indicators(run.now, run.line()))  # the directive is lost with the monitor
    kl["compressor_kl_max"] = 0.0
    run.start_monitor()
    [directive] = run.look()
    assert directive.payload == SetChain(1)
    assert directive.cause == {"compressor_kl_max": 20.0, "epsilon": 14.0}
    decided_s = run.now
    kl["compressor_kl_max"] = 20.0
    run.go_on(15.0)
    assert run.changes == [(decided_s, 1), (decided_s + 10.0, 2)]  # the dwell goes on


@pytest.mark.parametrize(
    "line",
    [
        '{"strategy": "s"}',
        '{"strategy": "s", "rung": 7, "changed_s": 1.0, "state": {"wait_s": 1, "failed": 0}}',
        '{"strategy": "s", "rung": 1, "changed_s": null, "state": {"wait_s": 1, "failed": 0}}',
        '{"strategy": "s", "rung": 1, "changed_s": 1.0, "state": {"plays": []}}',
        '{"strategy": "s", "rung":1, "changed_s": 1, "cause": 3, "state": {"wait_s":1,"failed":0}}',
        '{"strategy": "s", "compressed_share": 0.5, "changed_s": 1.0, "state": {}}',
    ],
)
def test_a_log_that_does_not_fit_is_told_and_the_run_begins_anew(tmp_path, line, caplog) -> None:
    (tmp_path / "strategies.jsonl").write_text(line + "\n")
    run = SimulatedRun(tmp_path, Threshold, lambda *_: {})
    assert run.plugin.setting == 0
    assert "event=strategy_reset name=s" in caplog.text


class Wild(Strategy):
    """Gives the decision of its argument."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def decide(self, moment):
        return self.decision


@pytest.mark.parametrize(
    "decision",
    [
        Decision(2),
        Decision(-1),
        Decision(0.5),
        Decision(float("nan")),
        Decision(1, {"kl": float("nan")}),  # nothing that could be read back
    ],
)
def test_what_no_run_could_follow_is_refused_and_changes_nothing(tmp_path, decision) -> None:
    run = SimulatedRun(tmp_path, lambda: Wild(decision), lambda *_: {}, dwell_s=0.5)
    with pytest.raises(ValueError):
        run.go_on(10.0)
    assert run.plugin.setting == 0 and run.log() == []
