"""The view of a run: rates by arithmetic, totals against a simulated run with deaths."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aclearn.monitoring import METRIC_NAMES, RunView, StepLedger


@dataclass(frozen=True)
class _Beat:
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    episode_returns: tuple[float, ...] = ()


def _actor(view: RunView, incarnation: str, now: float, **counters: int) -> None:
    view.observe_beat("actor", "actor-0", incarnation, _Beat(counters), now)


def _trainer(view: RunView, incarnation: str, now: float, **counters: int) -> None:
    named = {name.replace("seen_", "seen."): value for name, value in counters.items()}
    view.observe_beat("trainer", "trainer", incarnation, _Beat(named), now)


def _identity_holds(line: Mapping[str, object]) -> bool:
    dropped = line["dropped_steps"]
    assert isinstance(dropped, dict)
    parts = line["learned_steps"], sum(dropped.values()), line["in_flight_steps"]
    return line["env_steps"] == sum(parts)  # type: ignore[arg-type]


def test_a_line_before_any_beat_has_every_name_and_no_episode() -> None:
    line = RunView(50.0).line(53.0)
    assert tuple(line) == METRIC_NAMES
    assert line["time_s"] == 3.0
    assert line["return_mean_100"] is None
    assert (line["env_steps"], line["dropped_steps"], line["wait_share"]) == (0, {}, {})
    assert (line["env_steps_per_s"], line["pps"], line["tps"]) == (0.0, 0.0, 0.0)


def test_a_line_is_json_without_nan_whatever_the_gauges_are() -> None:
    view = RunView(0.0)
    gauges = {"loss_policy": math.nan, "loss_value": math.inf, "entropy": 1.5, "lag_max": 3.0}
    beat = _Beat(gauges=gauges, episode_returns=(math.nan, 7.0))
    view.observe_beat("trainer", "trainer", "t", beat, 1.0)
    line = json.loads(json.dumps(view.line(1.0), allow_nan=False))
    assert "loss_policy" not in line
    assert (line["entropy"], line["lag_max"], line["return_mean_100"]) == (1.5, 3.0, 7.0)


def test_gauges_of_other_roles_carry_their_name_and_never_hide_a_metric() -> None:
    view = RunView(0.0)
    view.observe_beat("trainer", "t", "t", _Beat(gauges={"queue_fill": 0.5, "tps": 9e9}), 1.0)
    view.observe_beat("predictor", "p0", "p", _Beat(gauges={"batch": 10.0}), 1.0)
    view.observe_beat("predictor", "p1", "q", _Beat(gauges={"batch": 20.0}), 1.0)
    assert view.extra == {"queue_fill": 0.5, "predictor_batch": 15.0}
    assert view.line(1.0)["tps"] == 0.0


def test_steps_that_the_trainer_has_not_seen_are_in_flight_while_their_actor_lives() -> None:
    view = RunView(0.0)
    _trainer(view, "t", 1.0, env_steps=100, learned_steps=60, in_flight_steps=40, seen_a=100)
    _actor(view, "a", 1.0, env_steps=130)  # 30 ahead of the trainer
    _actor(view, "b", 1.0, env_steps=20)  # not seen at all
    line = view.line(1.0)
    assert (line["env_steps"], line["learned_steps"], line["in_flight_steps"]) == (150, 60, 90)
    assert _identity_holds(line)


def test_an_actors_beat_that_is_older_than_its_unroll_takes_nothing_away() -> None:
    view = RunView(0.0)
    _actor(view, "a", 1.0, env_steps=80)
    _trainer(view, "t", 1.2, env_steps=100, learned_steps=60, in_flight_steps=40, seen_a=100)
    line = view.line(1.2)
    assert (line["env_steps"], line["in_flight_steps"]) == (100, 40)
    assert _identity_holds(line)


def test_unseen_steps_of_a_dead_actor_are_lost_until_the_trainer_counts_them_itself() -> None:
    view = RunView(0.0)
    _trainer(view, "t", 1.0, env_steps=100, learned_steps=100, seen_a=100)
    _actor(view, "a", 1.0, env_steps=130)
    view.role_gone("a", 2.0)
    line = view.line(2.0)
    assert (line["env_steps"], line["dropped_steps"]) == (130, {"actor_lost": 30})
    assert _identity_holds(line)

    closed = {"env_steps": 130, "learned_steps": 100, "seen.a": 130}
    view.observe_beat("trainer", "t", "t", _Beat(closed, dropped={"actor_lost": 30}), 3.0)
    line = view.line(3.0)
    assert (line["env_steps"], line["dropped_steps"]) == (130, {"actor_lost": 30})


def test_what_a_trainer_no_longer_names_stays_counted() -> None:
    """A trainer stops naming actors that it closed long ago; they are part of its own numbers."""
    view = RunView(0.0)
    _actor(view, "gone", 1.0, env_steps=130)
    _actor(view, "alive", 1.0, env_steps=50)
    view.role_gone("gone", 2.0)
    # It closed "gone" without knowing of its last 30 steps.
    _trainer(view, "t", 3.0, env_steps=150, learned_steps=150, seen_gone=100, seen_alive=50)
    _trainer(view, "t", 4.0, env_steps=150, learned_steps=150, seen_alive=50)
    _trainer(view, "t", 5.0, env_steps=150, learned_steps=150)
    line = view.line(5.0)
    assert (line["env_steps"], line["dropped_steps"]) == (180, {"actor_lost": 30})
    assert line["in_flight_steps"] == 0
    assert _identity_holds(line)


def test_what_a_trainer_saw_after_its_checkpoint_is_no_new_step_after_its_restart() -> None:
    view = RunView(0.0)
    _actor(view, "a", 0.0, env_steps=80)
    _trainer(view, "t", 0.0, env_steps=80, learned_steps=80, seen_a=80)
    _trainer(view, "t", 1.0, env_steps=100, learned_steps=100, seen_a=100)
    _trainer(view, "t2", 2.0, env_steps=50, learned_steps=50, seen_a=50)
    _actor(view, "a", 4.0, env_steps=120)
    line = view.line(4.0)
    assert (line["env_steps"], line["in_flight_steps"]) == (120, 70)
    assert line["env_steps_per_s"] == pytest.approx((120 - 80) / 4)


@pytest.mark.parametrize("dies", [False, True])
def test_steps_that_only_a_dead_trainer_saw_stay_counted(dies) -> None:
    # the unroll was faster than the beat that tells of its steps; then both, or one, are killed
    view = RunView(0.0)
    _actor(view, "a", 0.0, env_steps=80)
    _trainer(view, "t", 1.0, env_steps=100, learned_steps=90, in_flight_steps=10, seen_a=100)
    if dies:
        view.role_gone("a", 2.0)
    _trainer(view, "t2", 3.0, env_steps=50, learned_steps=50, seen_a=50)
    line = view.line(3.0)
    assert line["env_steps"] == 100
    assert (line["in_flight_steps"], line["dropped_steps"]) == (
        (0, {"actor_lost": 50}) if dies else (50, {})
    )
    # an older beat that comes late takes nothing away either
    if not dies:
        _actor(view, "a", 4.0, env_steps=90)
        assert view.line(4.0)["env_steps"] == 100
    assert _identity_holds(view.line(4.0))


def test_a_counter_that_goes_back_within_a_process_is_no_negative_rate() -> None:
    view = RunView(0.0)
    for tick, learned in enumerate((0, 100, 40, 60)):
        _trainer(view, "t", float(tick), learned_steps=learned)
    assert view.line(3.0)["learned_steps_per_s"] == pytest.approx((100 + 20) / 3)


def test_rates_are_increments_over_the_window() -> None:
    view = RunView(0.0)
    for tick in range(61):  # 30 s, two beats a second
        now = tick / 2
        _actor(view, "a", now, env_steps=50 * tick, predictions=60 * tick)
        _actor(view, "b", now, env_steps=10 * tick, predictions=20 * tick)
        steps = 40 * tick
        _trainer(view, "t", now, env_steps=steps, learned_steps=steps, updates=tick, seen_a=steps)
    line = view.line(30.0)
    assert line["env_steps_per_s"] == pytest.approx(120.0)
    assert line["learned_steps_per_s"] == pytest.approx(80.0)
    assert line["pps"] == pytest.approx(160.0)
    assert line["tps"] == pytest.approx(2.0)


def test_batches_are_the_training_rate_where_each_is_used_more_than_once() -> None:
    view = RunView(0.0)
    for tick in range(11):
        _trainer(view, "t", float(tick), updates=6 * tick, batches=3 * tick)
    line = view.line(10.0)
    assert (line["updates"], line["tps"]) == (60, pytest.approx(3.0))


def test_rates_follow_a_change_within_the_window_and_fall_to_zero_in_silence() -> None:
    view = RunView(0.0)
    for tick in range(21):
        _trainer(view, "t", float(tick), learned_steps=min(tick, 10) * 100)
    assert view.line(20.0)["learned_steps_per_s"] == 0.0
    _trainer(view, "t", 21.0, learned_steps=1500)
    assert view.line(21.0)["learned_steps_per_s"] == pytest.approx(50.0)  # 500 in 10 s
    assert view.line(26.0)["learned_steps_per_s"] == pytest.approx(50.0)
    assert view.line(60.0)["learned_steps_per_s"] == 0.0


def test_a_restarted_actor_adds_to_the_rates_from_zero() -> None:
    view = RunView(0.0)
    for tick in range(6):
        _actor(view, "a", float(tick), env_steps=100 * tick, predictions=100 * tick)
    view.role_gone("a", 5.0)
    for tick in range(6):
        _actor(view, "a2", 5.0 + tick, env_steps=100 * tick, predictions=100 * tick)
        line = view.line(5.0 + tick)
        assert line["pps"] == pytest.approx(100.0)
        assert line["env_steps_per_s"] == pytest.approx(100.0)
    assert line["env_steps"] == 1000
    assert line["dropped_steps"] == {"actor_lost": 500}


def test_a_trainer_restarted_from_a_checkpoint_goes_back_without_negative_rates() -> None:
    view = RunView(0.0)
    for tick in range(6):
        steps = 100 * tick
        _actor(view, "a", float(tick), env_steps=steps)
        _trainer(view, "t", float(tick), env_steps=steps, learned_steps=steps, seen_a=steps)
    view.role_gone("t", 5.0)
    _trainer(
        view, "t2", 6.0, env_steps=200, learned_steps=200, seen_a=200, epoch=1, policy_version=2
    )
    line = view.line(6.0)
    assert (line["env_steps"], line["learned_steps"], line["in_flight_steps"]) == (500, 200, 300)
    assert (line["epoch"], line["policy_version"]) == (1, 2)
    assert line["learned_steps_per_s"] == pytest.approx(500 / 6)
    assert line["env_steps_per_s"] == pytest.approx(500 / 6)


def test_a_ghost_of_a_replaced_trainer_is_ignored() -> None:
    view = RunView(0.0)
    _trainer(view, "t", 1.0, env_steps=100, learned_steps=100, epoch=0)
    _trainer(view, "t2", 2.0, env_steps=90, learned_steps=90, epoch=1)
    _trainer(view, "t", 3.0, env_steps=500, learned_steps=500, epoch=0)
    line = view.line(3.0)
    assert (line["learned_steps"], line["epoch"]) == (90, 1)


def test_a_silent_trainer_that_speaks_again_is_the_same_trainer() -> None:
    view = RunView(0.0)
    _trainer(view, "t", 0.0, env_steps=100, learned_steps=100)
    view.role_gone("t", 5.0)
    _trainer(view, "t", 8.0, env_steps=180, learned_steps=180)
    _trainer(view, "t", 10.0, env_steps=200, learned_steps=200)
    line = view.line(10.0)
    assert line["learned_steps"] == 200
    assert line["learned_steps_per_s"] == pytest.approx(2.0)


def test_a_monitor_that_starts_in_mid_run_reports_no_burst() -> None:
    view = RunView(0.0)
    _actor(view, "a", 0.0, env_steps=1_000_000, predictions=1_000_000)
    _trainer(view, "t", 0.1, env_steps=990_000, learned_steps=990_000, seen_a=990_000, updates=9000)
    _actor(view, "b", 0.2, env_steps=500_000, predictions=500_000)
    _actor(view, "a", 1.0, env_steps=1_000_100, predictions=1_000_100)
    line = view.line(1.0)
    assert line["env_steps"] == 1_500_100
    assert line["env_steps_per_s"] == pytest.approx(100.0)
    assert line["pps"] == pytest.approx(100.0)
    assert line["tps"] == 0.0


def test_the_return_is_the_mean_of_the_last_hundred_episodes() -> None:
    view = RunView(0.0)
    for number in range(130):
        beat = _Beat({"episodes": number + 1}, episode_returns=(float(number),))
        view.observe_beat("actor", "a", "a", beat, 1.0)
        if number == 3:
            assert view.line(1.0)["return_mean_100"] == 1.5
            assert view.returns_in_mean == 4
    line = view.line(2.0)
    assert line["return_mean_100"] == sum(range(30, 130)) / 100
    assert line["episodes"] == 130
    assert view.returns_in_mean == 100


def test_episodes_whose_beat_went_missing_are_counted_by_the_counter() -> None:
    view = RunView(0.0)
    view.observe_beat("actor", "a", "a", _Beat({"episodes": 1}, episode_returns=(1.0,)), 1.0)
    view.observe_beat("actor", "a", "a", _Beat({"episodes": 4}, episode_returns=(1.0,)), 2.0)
    view.role_gone("a", 3.0)
    view.observe_beat("actor", "a", "a", _Beat({"episodes": 5}, episode_returns=(1.0,)), 4.0)
    view.observe_beat("actor", "b", "b", _Beat(episode_returns=(1.0, 2.0)), 5.0)
    assert view.line(5.0)["episodes"] == 7


def test_a_resumed_run_goes_on_with_its_time_and_episodes() -> None:
    view = RunView(10.0, resume_from={"time_s": 120.5, "episodes": 40, "env_steps": 7})
    assert view.line(12.0)["time_s"] == 122.5
    # This actor has lived through the older view, which counted its first six episodes.
    view.observe_beat("actor", "a", "a", _Beat({"episodes": 8}, episode_returns=(1.0, 2.0)), 13.0)
    view.observe_beat("actor", "b", "b", _Beat({"episodes": 1}, episode_returns=(3.0,)), 13.0)
    assert view.line(13.0)["episodes"] == 43


def test_wait_shares_are_means_over_the_processes_of_a_role_within_the_window() -> None:
    view = RunView(0.0)
    for tick in range(31):
        # Both have waited differently before the window: only the last 10 s count.
        old = min(tick, 20)
        new = max(0, tick - 20)
        first = {"actions": 0.5 * new, "total": float(tick)}
        second = {"actions": 1.0 * old, "unroll": 0.25 * new, "total": float(tick)}
        view.observe_beat("actor", "a0", "a", _Beat(waits=first), float(tick))
        view.observe_beat("actor", "a1", "b", _Beat(waits=second), float(tick))
    view.observe_beat("trainer", "t", "t", _Beat(waits={"queue": 1.0, "total": 4.0}), 30.0)
    share = view.line(30.0)["wait_share"]
    assert share["actor"] == pytest.approx({"actions": 0.25, "unroll": 0.125, "working": 0.625})
    assert share["trainer"] == pytest.approx({"queue": 0.25, "working": 0.75})
    view.role_gone("b", 30.0)
    share = view.line(30.0)["wait_share"]
    assert share["actor"] == pytest.approx({"actions": 0.5, "working": 0.5})


def test_waits_before_the_first_learned_batch_are_no_part_of_the_shares() -> None:
    view = RunView(0.0)
    for tick in range(1, 10):
        now, waited = float(tick), min(float(tick), 6.0)
        waits = {"weights": waited, "total": now}
        view.observe_beat("actor", "a0", "a", _Beat(waits=waits), now)
        # as resumed from a checkpoint: what counts is what this trainer learns
        _trainer(view, "t", now, learned_steps=500 + 20 * max(0, tick - 6))
    # the window would reach back to the first beat; the last wait ended with the sixth
    assert view.line(9.0)["wait_share"]["actor"] == pytest.approx(
        {"weights": 1 / 4, "working": 3 / 4}
    )


def test_seconds_by_part_are_sums_over_the_processes_of_a_role_that_never_fall() -> None:
    view = RunView(0.0)
    view.observe_beat("actor", "a0", "a", _Beat(parts={"encode": 1.0, "total": 3.0}), 1.0)
    view.observe_beat("actor", "a1", "b", _Beat(parts={"encode": 0.5, "total": 2.0}), 1.0)
    view.observe_beat("trainer", "t", "t", _Beat(parts={"forward": 0.25, "total": 1.0}), 1.0)
    view.observe_beat("actor", "a0", "a", _Beat(parts={"encode": 1.5, "total": 4.0}), 2.0)
    assert view.line(2.0)["part_seconds"] == {
        "actor": {"encode": 2.0, "total": 6.0},
        "trainer": {"forward": 0.25, "total": 1.0},
    }
    view.role_gone("a", 2.0)
    view.observe_beat("actor", "a0", "c", _Beat(parts={"encode": 0.125, "total": 0.5}), 3.0)
    assert view.line(3.0)["part_seconds"]["actor"] == {"encode": 2.125, "total": 6.5}


def test_the_memory_of_a_view_does_not_grow_with_the_beats() -> None:
    view = RunView(0.0)
    for tick in range(20_000):
        now = tick / 1000
        beat = _Beat({"env_steps": tick, "predictions": tick}, waits={"x": 0.0, "total": now})
        view.observe_beat("actor", "a", "a", beat, now)
    samples = view._env_steps_rate._samples, view._processes["a"].waits
    assert all(len(each) <= 102 for each in samples)
    assert view.line(20.0)["pps"] == pytest.approx(1000.0, rel=0.02)


class WholeRun(RuleBasedStateMachine):
    """Actors, a trainer with checkpoints and a monitor that hears late and in any order.

    The expectation is counted per actor: what it last said or what the living trainer's last beat
    had seen of it, whichever is more.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.view = RunView(0.0)
        self.ledger = StepLedger()
        self.trainer = 0
        self.saved = self.ledger.state()
        self.steps: dict[str, int] = {}
        self.sequence: dict[str, int] = {}
        self.dead: set[str] = set()
        self.said: dict[str, int] = {}
        self.trainer_said: dict[str, int] = {}
        self.high = 0

    def _name(self, index: int) -> str | None:
        alive = sorted(self.steps.keys() - self.dead)
        return alive[index % len(alive)] if alive else None

    @rule()
    def start_actor(self) -> None:
        name = f"actor{len(self.steps)}"
        self.steps[name] = 0
        self.sequence[name] = 0

    @rule(index=st.integers(0, 9), steps=st.integers(0, 20), arrives=st.booleans())
    def unroll(self, index: int, steps: int, arrives: bool) -> None:
        name = self._name(index)
        if name is not None:
            before = self.steps[name]
            self.steps[name] += steps
            if arrives:
                sequence = self.sequence[name]
                answer = self.ledger.admit(name, sequence, before, before + steps, {}, steps)
                assert answer is None
            self.sequence[name] += 1

    @rule(share=st.floats(0, 1))
    def learn(self, share: float) -> None:
        self.ledger.learned(int(share * self.ledger.in_flight_steps))

    @rule(index=st.integers(0, 9))
    def actor_beats(self, index: int) -> None:
        name = self._name(index)
        if name is not None:
            self.now += 0.25
            self.said[name] = self.steps[name]
            _actor(self.view, name, self.now, env_steps=self.steps[name])

    @rule()
    def trainer_beats(self) -> None:
        self.now += 0.25
        counters = self.ledger.beat_counters()
        beat = _Beat(counters, dropped=self.ledger.dropped_steps)
        self.view.observe_beat("trainer", "trainer", f"trainer{self.trainer}", beat, self.now)
        self.trainer_said = {
            name.removeprefix("seen."): value
            for name, value in counters.items()
            if name.startswith("seen.")
        }

    @rule(index=st.integers(0, 9), told=st.booleans())
    def actor_dies(self, index: int, told: bool) -> None:
        name = self._name(index)
        if name is not None:
            self.dead.add(name)
            self.view.role_gone(name, self.now)
            self.ledger.close(name, self.said.get(name, 0) if told else None)

    @rule()
    def save(self) -> None:
        self.saved = self.ledger.state()

    @rule()
    def trainer_restarts(self) -> None:
        self.view.role_gone(f"trainer{self.trainer}", self.now)
        self.trainer += 1
        self.ledger = StepLedger.from_state(self.saved)
        for name in self.dead:
            self.ledger.close(name)

    @precondition(lambda self: self.steps)
    @invariant()
    def the_line_is_exact(self) -> None:
        line = self.view.line(self.now)
        assert _identity_holds(line)
        assert line["env_steps"] == sum(
            max(self.said.get(name, 0), self.trainer_said.get(name, 0)) for name in self.steps
        )
        rates = line["env_steps_per_s"], line["learned_steps_per_s"], line["tps"], line["pps"]
        assert min(rates) >= 0


TestWholeRun = WholeRun.TestCase
TestWholeRun.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
