"""The account of steps over trainer and actors: by hand, and a simulated run with deaths."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aclearn.learning import StepAccount
from aclearn.metrics import MetricsAggregator
from tests.support.heartbeats import Heartbeat, actor_heartbeat, identity_holds, trainer_heartbeat


def test_steps_that_the_trainer_has_not_seen_are_in_flight_while_their_actor_lives() -> None:
    view = MetricsAggregator(0.0)
    trainer_heartbeat(
        view, "t", 1.0, env_steps=100, learned_steps=60, in_flight_steps=40, seen_a=100
    )
    actor_heartbeat(view, "a", 1.0, env_steps=130)  # 30 ahead of the trainer
    actor_heartbeat(view, "b", 1.0, env_steps=20)  # not seen at all
    line = view.line(1.0)
    assert (line["env_steps"], line["learned_steps"], line["in_flight_steps"]) == (150, 60, 90)
    assert identity_holds(line)


def test_an_actors_heartbeat_that_is_older_than_its_unroll_takes_nothing_away() -> None:
    view = MetricsAggregator(0.0)
    actor_heartbeat(view, "a", 1.0, env_steps=80)
    trainer_heartbeat(
        view, "t", 1.2, env_steps=100, learned_steps=60, in_flight_steps=40, seen_a=100
    )
    line = view.line(1.2)
    assert (line["env_steps"], line["in_flight_steps"]) == (100, 40)
    assert identity_holds(line)


def test_unseen_steps_of_a_dead_actor_are_lost_until_the_trainer_counts_them_itself() -> None:
    view = MetricsAggregator(0.0)
    trainer_heartbeat(view, "t", 1.0, env_steps=100, learned_steps=100, seen_a=100)
    actor_heartbeat(view, "a", 1.0, env_steps=130)
    view.role_gone("a")
    line = view.line(2.0)
    assert (line["env_steps"], line["dropped_steps"]) == (130, {"actor_lost": 30})
    assert identity_holds(line)

    closed = {"env_steps": 130, "learned_steps": 100}
    beat = Heartbeat(closed, dropped={"actor_lost": 30}, of_actors={"a": 130})
    view.observe_heartbeat("trainer", "t", beat, 3.0)
    line = view.line(3.0)
    assert (line["env_steps"], line["dropped_steps"]) == (130, {"actor_lost": 30})


def test_what_a_trainer_no_longer_names_stays_counted() -> None:
    """A trainer stops naming actors that it closed long ago; they are part of its own numbers."""
    view = MetricsAggregator(0.0)
    actor_heartbeat(view, "gone", 1.0, env_steps=130)
    actor_heartbeat(view, "alive", 1.0, env_steps=50)
    view.role_gone("gone")
    # It closed "gone" without knowing of its last 30 steps.
    trainer_heartbeat(
        view, "t", 3.0, env_steps=150, learned_steps=150, seen_gone=100, seen_alive=50
    )
    trainer_heartbeat(view, "t", 4.0, env_steps=150, learned_steps=150, seen_alive=50)
    trainer_heartbeat(view, "t", 5.0, env_steps=150, learned_steps=150)
    line = view.line(5.0)
    assert (line["env_steps"], line["dropped_steps"]) == (180, {"actor_lost": 30})
    assert line["in_flight_steps"] == 0
    assert identity_holds(line)


def test_what_a_trainer_saw_after_its_checkpoint_is_no_new_step_after_its_restart() -> None:
    view = MetricsAggregator(0.0)
    actor_heartbeat(view, "a", 0.0, env_steps=80)
    trainer_heartbeat(view, "t", 0.0, env_steps=80, learned_steps=80, seen_a=80)
    trainer_heartbeat(view, "t", 1.0, env_steps=100, learned_steps=100, seen_a=100)
    trainer_heartbeat(view, "t2", 2.0, env_steps=50, learned_steps=50, seen_a=50)
    actor_heartbeat(view, "a", 4.0, env_steps=120)
    line = view.line(4.0)
    assert (line["env_steps"], line["in_flight_steps"]) == (120, 70)
    assert line["env_steps_per_s"] == pytest.approx((120 - 80) / 4)


@pytest.mark.parametrize("dies", [False, True])
def test_steps_that_only_a_dead_trainer_saw_stay_counted(dies) -> None:
    # the unroll overtook the heartbeat that counts its steps; then both, or one, are killed
    view = MetricsAggregator(0.0)
    actor_heartbeat(view, "a", 0.0, env_steps=80)
    trainer_heartbeat(
        view, "t", 1.0, env_steps=100, learned_steps=90, in_flight_steps=10, seen_a=100
    )
    if dies:
        view.role_gone("a")
    trainer_heartbeat(view, "t2", 3.0, env_steps=50, learned_steps=50, seen_a=50)
    line = view.line(3.0)
    assert line["env_steps"] == 100
    assert (line["in_flight_steps"], line["dropped_steps"]) == (
        (0, {"actor_lost": 50}) if dies else (50, {})
    )
    # an older heartbeat that comes late removes nothing either
    if not dies:
        actor_heartbeat(view, "a", 4.0, env_steps=90)
        assert view.line(4.0)["env_steps"] == 100
    assert identity_holds(view.line(4.0))


def test_an_unroll_of_an_actor_that_was_taken_for_gone_stays_counted() -> None:
    view = MetricsAggregator(0.0)
    actor_heartbeat(view, "a", 0.0, env_steps=80)
    view.role_gone("a")
    trainer_heartbeat(view, "t", 2.0, env_steps=100, learned_steps=100, seen_a=100)
    trainer_heartbeat(view, "t2", 3.0, env_steps=50, learned_steps=50, seen_a=50)
    line = view.line(3.0)
    assert (line["env_steps"], line["dropped_steps"]) == (100, {"actor_lost": 50})
    # it was only silent, and its newest heartbeat is older than that unroll
    actor_heartbeat(view, "a", 4.0, env_steps=90)
    line = view.line(4.0)
    assert (line["env_steps"], line["in_flight_steps"], line["dropped_steps"]) == (100, 50, {})
    assert identity_holds(line)


class WholeRun(RuleBasedStateMachine):
    """Actors, a trainer with checkpoints and a monitor with late messages in any order.

    The expectation is per actor: the larger of its own count and of any trainer heartbeat's count
    of it. Before the actor's first report it is the last trainer heartbeat's count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.view = MetricsAggregator(0.0)
        self.account = StepAccount()
        self.trainer = 0
        self.saved = self.account.state()
        self.steps: dict[str, int] = {}
        self.sequence: dict[str, int] = {}
        self.dead: set[str] = set()
        self.trainer_said: dict[str, int] = {}
        self.known: dict[str, int] = {}

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
                answer = self.account.admit(name, sequence, before, before + steps, {}, steps)
                assert answer is None
            self.sequence[name] += 1

    @rule(share=st.floats(0, 1))
    def learn(self, share: float) -> None:
        self.account.learned(int(share * self.account.in_flight_steps))

    @rule(index=st.integers(0, 9))
    def actor_heartbeats(self, index: int) -> None:
        name = self._name(index)
        if name is not None:
            self.now += 0.25
            self.known[name] = self.steps[name]
            actor_heartbeat(self.view, name, self.now, env_steps=self.steps[name])

    @rule()
    def trainer_heartbeats(self) -> None:
        self.now += 0.25
        counters, dropped, self.trainer_said = self.account.counters()
        heartbeat = Heartbeat(counters, dropped=dropped, of_actors=self.trainer_said)
        self.view.observe_heartbeat("trainer", f"trainer{self.trainer}", heartbeat, self.now)
        for name in self.known:
            self.known[name] = max(self.known[name], self.trainer_said.get(name, 0))

    @rule(index=st.integers(0, 9))
    def actor_dies(self, index: int) -> None:
        name = self._name(index)
        if name is not None:
            self.dead.add(name)
            self.view.role_gone(name)

    @rule()
    def save(self) -> None:
        self.saved = self.account.state()

    @rule()
    def trainer_restarts(self) -> None:
        self.view.role_gone(f"trainer{self.trainer}")
        self.trainer += 1
        self.account = StepAccount()
        self.account.restore(self.saved)

    @precondition(lambda self: self.steps)
    @invariant()
    def the_line_is_exact(self) -> None:
        line = self.view.line(self.now)
        assert identity_holds(line)
        assert line["env_steps"] == sum(
            max(self.known.get(name, 0), self.trainer_said.get(name, 0)) for name in self.steps
        )
        rates = line["env_steps_per_s"], line["learned_steps_per_s"], line["tps"], line["pps"]
        assert min(rates) >= 0


TestWholeRun = WholeRun.TestCase
TestWholeRun.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
