"""The end of a run: the target, the bounds, and which comes first."""

from __future__ import annotations

from typing import Any

import pytest

from aclearn.config import RunConfig, config_of_keys
from aclearn.control import StopCondition
from aclearn.metrics import EPISODES_FOR_TARGET


def _line(episodes_in_mean: int = 100, **changes: Any) -> dict[str, Any]:
    line = {"time_s": 10.0, "accounted_env_steps": 500, "updates": 7, "return_mean_100": None}
    return {**line, "episodes_in_mean": episodes_in_mean, **changes}


def test_a_run_without_target_and_bounds_is_never_over() -> None:
    goal = StopCondition(RunConfig())
    line = _line(time_s=1e9, accounted_env_steps=10**15, updates=10**9, return_mean_100=1e9)
    assert goal.observe(line) is None
    assert goal.reached_target_at_s is None


@pytest.mark.parametrize(
    ("key", "bound", "name", "below", "at"),
    [
        ("max_env_steps", 1000, "accounted_env_steps", 999, 1000),
        ("max_updates", 50, "updates", 49, 51),
        ("max_wall_s", 60.0, "time_s", 59.9, 60.0),
    ],
)
def test_a_bound_ends_the_run_when_it_is_reached(key, bound, name, below, at) -> None:
    goal = StopCondition(RunConfig(**{key: bound}))
    assert goal.observe(_line(0, **{name: below})) is None
    assert goal.observe(_line(0, **{name: at})) == key


def test_the_target_counts_from_a_hundred_episodes_on() -> None:
    assert EPISODES_FOR_TARGET == 100
    goal = StopCondition(RunConfig(target_return=18.0))
    good = _line(return_mean_100=20.0)
    assert goal.observe(good | {"episodes_in_mean": 99}) is None
    assert goal.observe(_line(return_mean_100=17.99)) is None
    assert goal.observe(_line(return_mean_100=None)) is None
    assert goal.reached_target_at_s is None
    at = _line(return_mean_100=18.0, time_s=123.5)
    assert goal.observe(at) == "target_reached"
    assert goal.reached_target_at_s == 123.5


def test_a_negative_target_is_one_too() -> None:
    goal = StopCondition(RunConfig(target_return=0.0))
    assert goal.observe(_line(return_mean_100=-0.1)) is None
    assert goal.observe(_line(return_mean_100=0.0)) == "target_reached"


def test_the_first_time_at_the_target_stays_when_the_run_goes_on() -> None:
    goal = StopCondition(RunConfig(target_return=18.0, stop_at_target=False, max_updates=100))
    reached = _line(return_mean_100=19.0, time_s=50.0)
    assert goal.observe(reached) is None
    worse = _line(return_mean_100=3.0, time_s=60.0)
    assert goal.observe(worse) is None
    again = _line(return_mean_100=20.0, time_s=70.0, updates=100)
    assert goal.observe(again) == "max_updates"
    assert goal.reached_target_at_s == 50.0


def test_a_run_that_reached_its_target_before_it_was_resumed_is_over_at_once() -> None:
    goal = StopCondition(RunConfig(target_return=18.0), reached_target_at_s=33.0)
    line = _line(return_mean_100=None)
    assert goal.observe(line | {"episodes_in_mean": 0}) == "target_reached"
    assert goal.reached_target_at_s == 33.0


def test_the_target_comes_before_a_bound_that_is_reached_in_the_same_line() -> None:
    goal = StopCondition(RunConfig(target_return=18.0, max_updates=7))
    line = _line(return_mean_100=18.0)
    assert goal.observe(line) == "target_reached"


@pytest.mark.parametrize(
    ("last", "reached"),
    [
        ({}, None),
        ({"reached_target_at_s": 40.0}, 40.0),
        ({"target_return": 18.0, "reached_target_at_s": 40.0}, 40.0),
        ({"target_return": 15.0, "reached_target_at_s": 40.0}, None),
        ({"target_return": None, "reached_target_at_s": None}, None),
    ],
)
def test_a_run_that_goes_on_has_reached_what_it_has_unless_the_target_is_another(
    last: dict, reached: float | None
) -> None:
    config = config_of_keys({"env.id": "a", "run.target_return": 18.0})
    goal = StopCondition.resumed(config, last)
    expected = {"judged_return": 3.0, "target_return": 18.0, "reached_target_at_s": reached}
    assert goal.fields({"return_mean_100": 3.0}) == expected


def test_a_target_that_was_met_in_another_test_of_the_evaluator_is_not_reached() -> None:
    keys = {"env.id": "a", "run.target_return": 18.0, "evaluator.every_s": 60}
    first = config_of_keys(keys)
    last = {"reached_target_at_s": 40.0, "evaluator_test": first.evaluator_test}
    assert StopCondition.resumed(first, last).reached_target_at_s == 40.0
    other = config_of_keys(keys | {"evaluator.greedy": True})
    assert StopCondition.resumed(other, last).reached_target_at_s is None


def test_the_target_is_met_by_the_mean_of_the_one_who_judges() -> None:
    keys = {"env.id": "a", "run.target_return": 18.0, "evaluator.every_s": 60}
    line = _line(0, evaluator_return_mean=18.5, time_s=50.0)
    goal = StopCondition.resumed(config_of_keys(keys), {})
    assert goal.observe(_line(return_mean_100=20.0)) is None  # training does not judge
    assert goal.observe(_line(0, evaluator_return_mean=17.0)) is None
    assert goal.fields(line)["judged_return"] == 18.5
    assert goal.observe(line) == "target_reached"
    training = StopCondition.resumed(config_of_keys(keys | {"run.judge": "training"}), {})
    assert training.observe(line) is None


@pytest.mark.parametrize("judge", ["training", "evaluator"])
def test_evaluations_without_a_better_one_end_the_run_whoever_judges(judge: str) -> None:
    keys = {"env.id": "a", "run.judge": judge, "evaluator.every_s": 60, "evaluator.stop_after": 3}
    goal = StopCondition.resumed(config_of_keys(keys), {})
    for since_best in (None, 0, 2):
        assert goal.observe(_line(evaluator_since_best=since_best)) is None
    assert goal.observe(_line(evaluator_since_best=3)) == "early_stop"
    del keys["evaluator.stop_after"]
    endless = StopCondition.resumed(config_of_keys(keys), {})
    assert endless.observe(_line(evaluator_since_best=10**6)) is None


def _policies(**means: tuple[float | None, int]) -> dict[str, dict[str, Any]]:
    return {
        name: {"return_mean_100": mean, "episodes_in_mean": few, "evaluator_return_mean": 99.0}
        for name, (mean, few) in means.items()
    }


def test_targets_by_policy_are_met_when_each_has_reached_its_own() -> None:
    keys = {"env.id": "a", "policies.tagger.agents": "t_*", "policies.runner.agents": "r_*"}
    targets = {"run.target_return.tagger": 10, "run.target_return.runner": -2}
    config = config_of_keys({**keys, **targets})
    goal = StopCondition.resumed(config, {})
    for tagger, runner in (
        ((9.0, 100), (-1.0, 100)),
        ((10.0, 99), (-1.0, 100)),
        ((10.0, 100), (None, 0)),
    ):
        assert goal.observe(_line(policies=_policies(tagger=tagger, runner=runner))) is None
    line = _line(policies=_policies(tagger=(10.0, 100), runner=(-2.0, 100)))
    assert goal.observe(line) == "target_reached"
    assert goal.fields(line)["target_return"] is None
    own = goal.fields_of_policies()
    assert own == {"tagger": {"target_return": 10.0}, "runner": {"target_return": -2.0}}
    over = {"reached_target_at_s": 10.0, "policies": own}
    assert StopCondition.resumed(config, over).reached_target_at_s == 10.0
    other = config_of_keys({**keys, **targets, "run.target_return.tagger": 11})
    assert StopCondition.resumed(other, over).reached_target_at_s is None
    evaluated = config_of_keys({**keys, **targets, "evaluator.every_s": 1.0})
    assert (
        StopCondition.resumed(evaluated, {}).observe(_line(policies=_policies(tagger=(0, 0))))
        is None
    )  # the runner has no figures yet
