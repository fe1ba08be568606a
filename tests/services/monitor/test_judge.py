"""What the monitor counts, shows and says of a run's evaluations."""

from __future__ import annotations

import pytest

from aclearn.config import config_of_keys
from aclearn.wire import Heartbeat, PolicyNumbers
from services.monitor.judge import Judge


def _judge(last=None, **keys) -> Judge:
    given = {"env.id": "a", "evaluator.every_s": 10.0, "monitor.silent_after_s": 60.0, **keys}
    return Judge(config_of_keys(given), last or {})


def _gauges(version: int, mean: float, **more: float) -> dict[str, float]:
    known = {"generation": 0.0, "version": float(version), "return_mean": mean, "age_s": 2.0}
    return {**known, "return_standard_error": 0.5, "seconds": 2.0, "env_steps": 70.0, **more}


def _counts(judge: Judge) -> tuple:
    fields = judge.fields(0.0)
    names = ("evaluations", "since_best", "best_return")
    return tuple(fields[f"evaluator_{name}"] for name in names)


def test_each_version_counts_once_and_the_best_is_the_highest_mean() -> None:
    judge = _judge()
    judge.take("e", Heartbeat(gauges={"env_faults": 0.0}), 1.0)  # nothing is judged yet
    assert _counts(judge) == (0, 0, None)
    for version, mean in enumerate((3.0, 5.0, 5.0, 4.0)):
        for _ in range(2):
            judge.take("e", Heartbeat(gauges=_gauges(version, mean)), 10.0)
    assert _counts(judge) == (4, 2, 5.0)  # as good is not better
    fields = judge.fields(13.0)
    assert (fields["evaluator_version"], fields["evaluator_return_mean"]) == (3.0, 4.0)
    assert fields["evaluator_age_s"] == 5.0
    assert fields["evaluator_compressed_return_mean"] is None
    assert fields["evaluator_restarts"] == 0
    judge.take("another one", Heartbeat(gauges={"env_faults": 0.0}), 14.0)
    assert judge.fields(14.0)["evaluator_restarts"] == 1
    assert judge.fields(14.0)["evaluator_return_mean"] == 4.0  # of the one before


def test_a_later_part_of_the_run_counts_on() -> None:
    judge = _judge()
    for version, mean in enumerate((3.0, 2.0)):
        judge.take("e", Heartbeat(gauges=_gauges(version, mean)), 10.0)
    judge.take("e", Heartbeat(gauges=_gauges(1, 2.0, info_success=0.5)), 11.0)
    line = {"time_s": 12.0, **judge.fields(12.0)}
    assert line["evaluator_info_success"] == 0.5
    again = _judge(line)
    assert again.fields(12.0) == judge.fields(12.0)
    # the same one, of an evaluator that lives
    again.take("e", Heartbeat(gauges=_gauges(1, 2.0)), 13.0)
    assert _counts(again) == (2, 1, 3.0)
    again.take("e", Heartbeat(gauges=_gauges(0, 1.0, generation=1.0)), 14.0)
    assert _counts(again) == (3, 2, 3.0)


def test_of_several_policies_each_has_its_mean_and_those_that_count_make_the_best() -> None:
    def heartbeat(version: int, tagger: float, mean: float | None) -> Heartbeat:
        gauges = _gauges(version, 0.0)
        del gauges["return_mean"]
        of = {"tagger": PolicyNumbers(gauges={"return_mean": tagger, "unknown": 7.0})}
        return Heartbeat(
            gauges=gauges | ({} if mean is None else {"return_mean": mean}), policies=of
        )

    judge = _judge()
    for version, mean in enumerate((1.0, 2.0, 1.5)):
        judge.take("e", heartbeat(version, 10.0 * mean, mean), 10.0)
    assert _counts(judge) == (3, 1, 2.0)
    own = {"evaluator_return_mean": 15.0}
    assert judge.fields_of_policies() == {"tagger": own}
    line = {"time_s": 12.0, **judge.fields(12.0), "policies": {"tagger": own}}
    assert _judge(line).fields_of_policies() == {"tagger": own}
    judge.take("e", heartbeat(3, 40.0, None), 20.0)  # nothing judges: it counts, and is no best
    assert _counts(judge) == (4, 1, 2.0)


def test_means_of_another_test_are_forgotten() -> None:
    judge = _judge()
    for version, mean in enumerate((30.0, 20.0)):
        judge.take("e", Heartbeat(gauges=_gauges(version, mean)), 10.0)
    line = {"time_s": 12.0, **judge.fields(12.0)}
    for keys in (
        {"evaluator.env": {"kwargs": {"level": 2}}},
        {"evaluator.greedy": True},
        {"evaluator.episodes": 3},
    ):
        again = _judge(line, **keys)
        assert _counts(again) == (2, 0, None)  # evaluations of the run are still two
        assert again.fields(12.0)["evaluator_return_mean"] is None  # no target is met by it
        again.take("e", Heartbeat(gauges=_gauges(0, 1.0, generation=1.0)), 14.0)
        assert _counts(again) == (3, 0, 1.0)
    same = _judge(line, **{"evaluator.every_s": 5.0, "env.info_metrics": ["success"]})
    assert _counts(same) == (2, 1, 30.0)


@pytest.mark.parametrize(
    ("judges", "saved", "best"), [(True, 3.0, 3.0), (True, None, None), (False, None, 5.0)]
)
def test_a_best_that_died_with_its_trainer_is_forgotten(judges, saved, best) -> None:
    judge = _judge(**{"run.judge": "evaluator" if judges else "training"})
    judge.take_saved(0, None)
    for version, mean in enumerate((3.0, 5.0)):
        judge.take("e", Heartbeat(gauges=_gauges(version, mean)), 10.0)
    judge.take_saved(0, 3.0)  # a heartbeat from before the judgement
    assert _counts(judge) == (2, 0, 5.0)
    judge.take_saved(1, saved)
    assert _counts(judge) == (2, 0, best)
    judge.take("e", Heartbeat(gauges=_gauges(0, 4.0, generation=1.0)), 11.0)
    assert _counts(judge) == ((3, 0, 4.0) if judges else (3, 1, 5.0))


def _said(judge: Judge, present: bool, *times: float) -> list[str]:
    return [text for now in times for text in judge.look(present, now)]


def test_a_missing_judge_is_said_once_with_what_that_means_and_that_it_is_back() -> None:
    judge = _judge(**{"run.max_updates": 9})
    assert _said(judge, False, 0.0, 59.0) == []
    [text] = _said(judge, False, 60.0, 61.0, 200.0)
    assert "there is no evaluator since 60 s, which judges this run" in text
    assert "no checkpoint becomes the best" in text and "ends by run.max_updates" in text
    assert _said(judge, True, 201.0, 202.0) == ["the evaluator is back"]
    assert len(_said(judge, False, 203.0, 300.0)) == 1
    [text] = _said(_judge(), False, 0.0, 60.0)
    assert "does not end by itself" in text
    [text] = _said(_judge(**{"run.judge": "training"}), False, 0.0, 60.0)
    assert "training goes on, and is not evaluated" in text


def test_an_interval_shorter_than_an_evaluation_is_said_once() -> None:
    judge = _judge()
    judge.take("e", Heartbeat(gauges=_gauges(0, 1.0)), 1.0)
    assert _said(judge, True, 1.0) == []
    for version in (1, 2):
        judge.take("e", Heartbeat(gauges=_gauges(version, 1.0, seconds=12.5)), 1.0)
    [text] = _said(judge, True, 2.0, 3.0)
    assert text.startswith("evaluator.every_s: 10 s is less than an evaluation lasts (12.5 s)")
