"""An aggregator that continues another one: a restarted monitor, a resumed run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aclearn.metrics import MetricsAggregator
from aclearn.types import pack_seen
from aclearn.wire import Heartbeat
from tests.support.heartbeats import ended_episodes


def _heartbeat(
    returns: list[float], dropped: dict[str, int] | None = None, **counters: int
) -> Heartbeat:
    seen = {name: steps for name, steps in counters.items() if name.startswith("seen_")}
    named = {name: count for name, count in counters.items() if name not in seen}
    names, steps = pack_seen({name.removeprefix("seen_"): each for name, each in seen.items()})
    return Heartbeat(
        named,
        dropped=dropped or {},
        episode_returns=returns,
        actors={"default": names},
        actor_steps={"default": steps},
    )


def _first_view() -> MetricsAggregator:
    """An actor of 130 steps that died, one of 70 that lives; the trainer knows 150 of 200."""
    view = MetricsAggregator(0.0)
    ended = _heartbeat([5.0], env_steps=130, episodes=1)
    view.observe_heartbeat("actor", "dead", replace(ended, **ended_episodes([5.0])), 1.0)
    view.observe_heartbeat("actor", "alive", _heartbeat([], env_steps=70, episodes=0), 1.0)
    account = {"env_steps": 150, "learned_steps": 140, "in_flight_steps": 6, "updates": 9}
    seen = {"seen_dead": 100, "seen_alive": 50}
    view.observe_heartbeat("trainer", "t", _heartbeat([], {"lag": 4}, **account, **seen), 1.0)
    view.role_gone("dead")
    return view


def _next_view(first: MetricsAggregator) -> MetricsAggregator:
    last = json.loads(json.dumps(first.line(3.0)))
    return MetricsAggregator(10.0, resume_from=last, state=json.loads(json.dumps(first.state())))


def test_a_new_view_begins_where_the_old_one_ended() -> None:
    first = _first_view()
    before, after = first.line(3.0), _next_view(first).line(10.0)
    assert before["env_steps"] == after["env_steps"] == 200
    assert before["learned_steps"] == after["learned_steps"] == 140
    assert before["updates"] == after["updates"] == 9
    assert before["return_mean_100"] == after["return_mean_100"] == 5.0
    # the living actor has not reported yet: its 20 unseen steps count as lost until then
    assert after["dropped_steps"] == {"lag": 4, "actor_lost": 30 + 20}
    assert after["in_flight_steps"] == 6


def test_an_actor_that_is_heard_again_has_its_steps_in_flight_again() -> None:
    view = _next_view(_first_view())
    view.observe_heartbeat("actor", "alive", _heartbeat([], env_steps=80, episodes=0), 11.0)
    line = view.line(11.0)
    assert (line["env_steps"], line["in_flight_steps"]) == (210, 6 + 30)
    assert line["dropped_steps"] == {"lag": 4, "actor_lost": 30}


def test_a_trainer_that_went_back_to_its_checkpoint_takes_no_step_away() -> None:
    view = _next_view(_first_view())
    account = {"env_steps": 60, "learned_steps": 60, "in_flight_steps": 0, "updates": 4}
    view.observe_heartbeat("trainer", "t2", _heartbeat([], **account, seen_dead=60), 11.0)
    line = view.line(11.0)
    assert line["env_steps"] == 200
    assert line["dropped_steps"] == {"actor_lost": (130 - 60) + 70}


@pytest.mark.parametrize("state", [{}, {"totals": []}, {"totals": {"account": 3}}])
def test_a_state_that_is_none_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a state of a monitor"):
        MetricsAggregator(0.0, state=state)
