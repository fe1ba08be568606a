"""The metrics of several policies: each has its own, and the run has sums and what is judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aclearn.metrics import MetricsAggregator
from aclearn.metrics.policies import PoliciesAggregator, of_policies
from aclearn.metrics.tags import tagged
from aclearn.runs import is_metrics_line
from aclearn.types import pack_seen
from aclearn.wire import Heartbeat, PolicyNumbers
from tests.support.heartbeats import ended_episodes, identity_holds


def _actor(steps: dict[str, int], returns: dict[str, list[float]], length: int = 5) -> Heartbeat:
    policies = {}
    for name, count in steps.items():
        played = ended_episodes(returns[name], length) if returns.get(name) else {}
        played.pop("clock_s", None)
        counters = {"env_steps": count, "episodes": len(returns.get(name, ()))}
        policies[name] = PolicyNumbers(counters, **played)
    counters = {
        "env_steps": sum(steps.values()),
        "episodes": sum(len(each) for each in returns.values()),
    }
    return Heartbeat(counters, clock_s=1.0, policies=policies)


def _trainer(**learned: int) -> Heartbeat:
    def counters(steps: int) -> dict[str, int]:
        account = {"env_steps": steps, "learned_steps": steps - 10, "in_flight_steps": 7}
        return {**account, "updates": steps // 10, "policy_version": 4}

    policies = {
        name: PolicyNumbers(counters(steps), {"entropy": float(steps)}, {"too_old": 3})
        for name, steps in learned.items()
    }
    sums = {
        name: sum(each.counters[name] for each in policies.values())
        for name in counters(0)
        if name not in ("updates", "policy_version")
    }
    dropped = {"too_old": 3 * len(learned)}
    return Heartbeat(
        sums | {"updates": min(learned.values()) // 10, "policy_version": 4},
        {"queue_fill": 0.25},
        dropped,
        policies=policies,
        actors={name: pack_seen({"a": steps})[0] for name, steps in learned.items()},
        actor_steps={name: pack_seen({"a": steps})[1] for name, steps in learned.items()},
    )


def _view(judged: tuple[str, ...], **kept: Any) -> PoliciesAggregator:
    return PoliciesAggregator(0.0, ("tagger", "runner"), judged, **kept)


def _fed(judged: tuple[str, ...] = ("tagger",)) -> PoliciesAggregator:
    view = _view(judged)
    returns = {"tagger": [2.0, 4.0], "runner": [-3.0] * 100}
    view.observe_heartbeat("actor", "a", _actor({"tagger": 130, "runner": 260}, returns), 1.0)
    view.observe_heartbeat("trainer", "t", _trainer(tagger=100, runner=200), 1.0)
    return view


def test_each_policy_has_its_figures_and_the_account_holds_for_each_and_in_sum() -> None:
    line = _fed().line(1.0)
    tagger, runner = line["policies"]["tagger"], line["policies"]["runner"]
    assert (tagger["return_mean_100"], runner["return_mean_100"]) == (3.0, -3.0)
    assert (tagger["episodes_in_mean"], runner["episodes_in_mean"]) == (2, 100)
    assert (tagger["episode_length_mean"], tagger["entropy"], runner["entropy"]) == (5, 100, 200)
    for part in (tagger, runner, line):
        assert identity_holds(part)
    assert (tagger["env_steps"], runner["env_steps"], line["env_steps"]) == (130, 260, 390)
    assert (tagger["updates"], runner["updates"], line["updates"]) == (10, 20, 10)
    assert (line["episodes"], line["queue_fill"], line["policy"]) == (102, 0.25, None)
    assert "queue_fill" not in tagger and "entropy" not in line and "time_s" not in tagger
    assert is_metrics_line(json.loads(json.dumps(line)))


@pytest.mark.parametrize(
    ("judged", "mean", "episodes", "of_100"),
    [
        (("tagger",), 3.0, 2, None),
        (("runner",), -3.0, 100, -3.0),
        (("tagger", "runner"), 0.0, 2, None),
        ((), None, 0, None),
    ],
)
def test_the_runs_mean_is_that_of_the_judged_policies(judged, mean, episodes, of_100) -> None:
    view = _fed(judged)
    line = view.line(1.0)
    assert (line["return_mean_100"], line["episodes_in_mean"]) == (mean, episodes)
    assert view.mean_of_100 == of_100


def test_a_later_monitor_goes_on_with_the_figures_of_each_policy() -> None:
    view = _fed()
    line, state = (json.loads(json.dumps(each)) for each in (view.line(1.0), view.state()))
    again = _view(("tagger",), resume_from=line, state=state).line(0.0)
    kept = ("return_mean_100", "episodes", "env_steps", "updates", "episodes_in_mean")
    for name in ("tagger", "runner"):
        old, new = line["policies"][name], again["policies"][name]
        assert {key: new[key] for key in kept} == {key: old[key] for key in kept}
    assert identity_holds(again) and again["env_steps"] == 390


def test_steps_of_an_actor_that_died_are_lost_for_each_of_its_policies() -> None:
    view = _fed()
    view.role_gone("a")
    line = view.line(2.0)
    assert line["policies"]["tagger"]["dropped_steps"] == {"too_old": 3, "actor_lost": 30}
    assert line["policies"]["runner"]["dropped_steps"]["actor_lost"] == 60
    assert line["dropped_steps"]["actor_lost"] == 90 and identity_holds(line)


def test_further_figures_join_the_policys_own_and_tags_end_with_its_name() -> None:
    line = _fed().line(1.0)
    line["policies"] = of_policies(line, {"tagger": {"target_return": 10.0}}, {"x": {"y": 1.0}})
    assert set(line["policies"]) == {"tagger", "runner"}
    tags = dict(tagged(line, ["actor", "trainer"]))
    assert tags["return/target/tagger"] == 10.0 and "return/target/runner" not in tags
    assert (tags["return/mean_100/runner"], tags["loss/entropy/tagger"]) == (-3.0, 100.0)
    assert tags["steps/dropped/too_old/runner"] == 3.0
    assert of_policies(MetricsAggregator(0.0).line(1.0), {}) == {}
