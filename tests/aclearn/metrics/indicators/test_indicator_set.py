"""A user's indicators: loading, their metrics in the line, and invalid ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aclearn.config.monitor import UsersClass
from aclearn.errors import ConfigError
from aclearn.metrics.indicators import Episode, IndicatorSet, check_indicator, load_indicators
from aclearn.metrics.names import GAP_FIGURES, SLOPE_FIGURES
from tests.support.toys import toy_indicator as toy

TOY = "tests.support.toys.toy_indicator"


def line(**figures) -> dict:
    return {"time_s": 1.0, "env_steps": 10, **figures}


def test_figures_of_the_users_indicators_are_in_the_line_each_sees_those_before() -> None:
    entries = [{f"{TOY}:BestStreak": {"least": 2.0}}, {f"{TOY}:EntropyPerStep": {}}]
    indicators = IndicatorSet(60.0, load_indicators(map(UsersClass.model_validate, entries)))
    first = line()
    indicators.add_figures(first, [])
    null = dict.fromkeys((*SLOPE_FIGURES, *GAP_FIGURES, "entropy_per_streak"))
    assert first == line(**null, best_streak=0.0, streak=0.0, monitor_indicator_failures=0.0)
    second = line(entropy=0.6)
    indicators.add_figures(second, [Episode(r) for r in (2.0, 3.0, 1.0, 2.0)])
    assert (second["best_streak"], second["streak"]) == (2.0, 1.0)
    assert second["entropy_per_streak"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, "high", [1.0], True, {"a": 1.0}, np.array([1.0, 2.0])]
)
def test_what_is_no_number_is_a_failure_told_once_and_the_figure_is_null(value, caplog) -> None:
    indicators = IndicatorSet(60.0, [toy.Gives(value), toy.BestStreak(0.0)])
    for failures in (1.0, 2.0):
        made = line()
        indicators.add_figures(made, [])
        assert made["given"] is None and made["streak"] == 0.0
        assert made["monitor_indicator_failures"] == failures
    told = [t for t in caplog.messages if t.startswith("event=indicator_failed indicator=Gives")]
    assert len(told) == 1


def test_figures_that_are_the_roles_stay_and_others_than_the_named_are_refused() -> None:
    class Raises(toy.Gives):
        def observe(self, run):
            return run.line["no_such_figure"]

    class Writes(toy.Gives):
        def observe(self, run):
            run.line["env_steps"] = 0

    for bad, given in (
        (toy.Named(("user_loss",)), {"user_loss": 7.0}),
        (toy.Gives(1.0, name="other"), {}),
        (Raises(), {}),
        (Writes(), {}),
    ):
        indicators = IndicatorSet(60.0, [bad])
        made = line(**given)
        indicators.add_figures(made, [])
        assert indicators.failures == 1
        assert made.items() >= line(**given).items() and "other" not in made


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({f"{TOY}:Missing": {}}, "has no Missing"),
        ({"no_such_module:Name": {}}, "cannot be imported"),
        ({f"{TOY}:BestStreak": {}}, "it takes least"),
        ({"aclearn.control:MonitorPlugin": {}}, "Indicator, got"),
        ({f"{TOY}:Named": {"names": ()}}, "names: expected the names of its figures in a tuple"),
        ({f"{TOY}:Named": {"names": "speed"}}, "names: expected the names of its figures"),
        ({f"{TOY}:Named": {"names": ("learned_steps",)}}, "'learned_steps' is a name of ours"),
        ({f"{TOY}:Named": {"names": ("entropy",)}}, "'entropy' is a name of ours"),
        ({f"{TOY}:Named": {"names": ("reward_gap",)}}, "'reward_gap' is a name of ours"),
        ({f"{TOY}:Named": {"names": ("compressor_kl",)}}, "or begins like one"),
        ({f"{TOY}:Named": {"names": ("two words",)}}, "expected lower-case letters"),
        ({f"{TOY}:Named": {"names": (3,)}}, "expected lower-case letters, digits and _"),
        ({f"{TOY}:Named": {"names": ("metrics_error",)}}, "is a name of ours"),
        ({f"{TOY}:Gives": {"value": 0.0}}, "'given' is a figure of another indicator"),
    ],
)
def test_an_indicator_that_cannot_be_is_refused_by_name(entry, message) -> None:
    with pytest.raises(ConfigError, match=r"^monitor\.indicators '") as refused:
        load_indicators(map(UsersClass.model_validate, ({f"{TOY}:Gives": {"value": 1.0}}, entry)))
    assert message in str(refused.value)


def test_check_indicator_passes_what_works() -> None:
    streaks = toy.BestStreak(3.0)
    check_indicator(streaks)
    assert streaks.best == 0  # it stays as it was
    check_indicator(toy.EntropyPerStep(), entropy=0.5, streak=1.0)


def test_check_indicator_names_each_breach() -> None:
    class Counts(toy.Gives):
        calls = 0

        def observe(self, run):
            Counts.calls += 1
            return {"given": float(Counts.calls)}

    class Impatient(toy.Gives):
        def observe(self, run):
            return {"given": run.line["return_mean_100"] + 1.0}

    for breach, message in (
        (toy.Gives(math.nan), "given: expected a finite number or None, got nan"),
        (toy.Gives(1.0, name="x"), "observe: 'x': expected a name among ('given',)"),
        (toy.Named(("pps",)), "'pps' is a name of ours"),
        (Counts(), "two runs of the same samples gave different metrics"),
        (Impatient(), "at line 0 of a run; metrics may be null"),
    ):
        with pytest.raises(AssertionError) as found:
            check_indicator(breach)
        assert message in str(found.value)
