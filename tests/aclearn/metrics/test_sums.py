"""The sums over a run's actors, by event, beside plain recomputations of all their numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from aclearn.learning import StepAccount
from aclearn.metrics import MetricsAggregator
from aclearn.metrics import episode_means as episode_means_module
from aclearn.metrics.episode_means import EpisodeMeans
from aclearn.types import EpisodeCohort
from tests.support.heartbeats import Heartbeat, identity_holds
from tests.support.plain_sums import PlainEpisodes, PlainTotals


class Actor:
    """What one process of an actor has counted, and the beginnings of its running episodes."""

    def __init__(self, now: float, ahead_s: float) -> None:
        self.steps, self.sequence, self.episodes, self.part_s = 0, 0, 0, 0.0
        self.ahead_s, self.settled_at = ahead_s, now


class Run:
    """Actors, a trainer with checkpoints and a monitor, driven by a generator of numbers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.view, self.now = MetricsAggregator(0.0), 0.0
        self.totals, self.means = PlainTotals(), PlainEpisodes()
        self.account, self.trainer = StepAccount(), 0
        self.saved = self.account.state()
        self.actors: dict[str, Actor] = {}
        self.joined = 0
        #: What each process has reported, and the parts of those that are gone too.
        self.gauges: dict[str, float] = {}
        self.parts: dict[str, float] = {}
        self.episodes: dict[str, int] = {}

    def join(self) -> None:
        self.joined += 1
        ahead_s = float(self.rng.uniform(-1e4, 1e4))
        self.actors[f"a{self.joined}"] = Actor(self.now, ahead_s)

    def unroll(self) -> None:
        name = self._any()
        actor, steps = self.actors[name], int(self.rng.integers(1, 30))
        before, actor.steps = actor.steps, actor.steps + steps
        if self.rng.random() < 0.8:  # else it is lost on its way
            self.account.admit(name, actor.sequence, before, actor.steps, {}, steps)
        actor.sequence += 1

    def learn(self) -> None:
        self.account.learned(int(self.rng.random() * self.account.in_flight_steps))

    def heartbeat(self) -> None:
        name = self._any()
        actor = self.actors[name]
        count = int(self.rng.integers(0, 4))
        # what began between its newest report and now, and has ended
        begins = sorted(self.rng.uniform(actor.settled_at, self.now, count))
        cohorts = [
            EpisodeCohort(
                at + actor.ahead_s, int(self.rng.integers(1, 9)), float(self.rng.normal()) / 3, 7
            )
            for at in begins
        ]
        if self.rng.random() < 0.7:  # else a long episode goes on
            actor.settled_at = self.now
        actor.episodes += sum(each.episodes for each in cohorts)
        actor.part_s += float(self.rng.random())
        gauge = float(self.rng.normal())
        clock_s = self.now + actor.ahead_s
        settled_s = actor.settled_at + actor.ahead_s
        beat = Heartbeat(
            {"env_steps": actor.steps, "episodes": actor.episodes},
            {"heat": gauge},
            parts={"emulator": actor.part_s, "total": actor.part_s},
            cohorts=tuple(cohorts),
            settled_s=settled_s,
            clock_s=clock_s,
        )
        self.view.observe_heartbeat("actor", name, beat, self.now)
        self.totals.actor_says(name, actor.steps)
        self.means.actor_says(name, cohorts, settled_s, clock_s, self.now)
        self.gauges[name], self.parts[name] = gauge, actor.part_s
        self.episodes[name] = actor.episodes

    def report(self) -> None:
        counters, dropped, seen = self.account.counters()
        name = f"t{self.trainer}"
        self.view.observe_heartbeat(
            "trainer", name, Heartbeat(counters, dropped=dropped, of_actors=seen), self.now
        )
        self.totals.trainer_says(name, counters, dropped, seen)

    def silence(self) -> str:
        """The monitor takes an actor for gone; it may live."""
        name = self._any()
        self.view.role_gone(name)
        if name in self.totals.live:
            self.totals.actor_is_gone(name)
        if name in self.means.offsets:
            self.means.actor_is_gone(name)
        self.gauges.pop(name, None)
        return name

    def death(self) -> None:
        del self.actors[self.silence()]
        self.join()

    def save(self) -> None:
        self.saved = self.account.state()

    def trainer_restarts(self) -> None:
        self.view.role_gone(f"t{self.trainer}")
        self.trainer += 1
        self.account = StepAccount()
        self.account.restore(self.saved)
        self.report()

    def _any(self) -> str:
        names = list(self.actors)
        return names[int(self.rng.integers(len(names)))]

    def check(self) -> dict[str, Any]:
        line = self.view.line(self.now)
        assert identity_holds(line)
        expected: dict[str, Any] = {**self.totals.figures(), **self.means.figures()}
        assert {name: line[name] for name in expected} == expected
        assert line["episodes"] == sum(self.episodes.values())
        heat = [*self.gauges.values()]
        assert line.get("actor_heat") == (math.fsum(heat) / len(heat) if heat else None)
        if self.parts:
            emulator = line["part_seconds"]["actor"]["emulator"]
            assert emulator == pytest.approx(sum(self.parts.values()), abs=1e-3)
        return line


_EVENTS = {
    Run.heartbeat: 40, Run.unroll: 40, Run.learn: 5, Run.report: 6, Run.join: 2, Run.silence: 2,
    Run.death: 2, Run.save: 1, Run.trainer_restarts: 1,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_sums_by_event_are_those_of_all_numbers_through_joins_deaths_and_restarts(seed) -> None:
    run, shares = Run(seed), np.array(list(_EVENTS.values())) / sum(_EVENTS.values())
    for _ in range(10):
        run.join()
    run.report()
    steps = 0
    for event in run.rng.choice(len(_EVENTS), 400, p=shares):
        run.now += 0.1
        happens = list(_EVENTS)[event]
        happens(run)
        line = run.check()
        # steps that a restarted actor had taken stay; a trainer may forget some of its own
        assert line["env_steps"] >= steps or happens is Run.trainer_restarts
        steps = line["env_steps"]


def test_a_monitors_successor_goes_on_with_the_same_sums() -> None:
    run = Run(11)
    for _ in range(5):
        run.join()
    run.report()
    for turn in range(12):
        for _ in range(30):
            run.now += 0.1
            run.unroll()
            run.heartbeat()
        run.report()
        if turn % 2:
            state = json.loads(json.dumps(run.view.state()))
            run.view = MetricsAggregator(run.now, resume_from=run.view.line(run.now), state=state)
            run.totals.successor()
            run.report()
        expected = run.totals.figures()
        line = run.view.line(run.now)
        assert {name: line[name] for name in expected} == expected


def test_a_float_sum_of_many_heartbeats_does_not_drift() -> None:
    means = EpisodeMeans()
    for beat in range(1, 3000):
        cohorts = [EpisodeCohort(beat - 0.5, 1, 1e9 if beat % 2 else 0.1, 1)]
        means.observe(
            "a", Heartbeat(cohorts=tuple(cohorts), settled_s=beat, clock_s=beat), beat, settles=True
        )
    assert means.return_mean == math.fsum([1e9, 0.1] * 50) / 100


def test_episodes_that_wait_for_the_longest_of_a_thousand_actors_are_joined_and_all_count(
    monkeypatch,
) -> None:
    monkeypatch.setattr(episode_means_module, "_MOST_WAITING", 64)
    monkeypatch.setattr(episode_means_module, "EPISODES_FOR_TARGET", 10_000)
    means = EpisodeMeans()

    def say(actor: str, at: float, settled_s: float, *returns: float) -> None:
        cohorts = tuple(EpisodeCohort(at - 0.5, 1, each, 2) for each in returns)
        beat = Heartbeat(cohorts=cohorts, settled_s=settled_s, clock_s=at)
        means.observe(actor, beat, at, settles=True)

    say("long", 1.0, 0.5)  # its episode goes on and on
    for at in range(2, 1000):
        say(f"a{at % 7}", at, at, float(at))
    assert (means.episodes, len(means._waiting) <= 64) == (0, True)
    say("long", 1000.0, 1000.0)
    for actor in range(7):
        say(f"a{actor}", 1000.0, 1000.0)
    assert means.episodes == 998 and means.return_mean == pytest.approx(np.mean(range(2, 1000)))


def test_actors_that_leave_at_once_make_one_gap_and_the_search_for_the_oldest_stays_short() -> None:
    means = EpisodeMeans()
    for at in range(1, 4):
        for actor in range(300):
            beat = Heartbeat(settled_s=at - 0.9, clock_s=float(at))
            means.observe(f"a{actor}", beat, float(at), settles=True)
    assert len(means._oldest) <= 2 * 300 + 64
    for actor in range(300):
        means.forget(f"a{actor}")
    assert list(means._gaps) == [(pytest.approx(2.1), 3.0)]
