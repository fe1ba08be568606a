"""The evaluator's steps: what it asks, plays and tells, in which order, and within its share."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.rollout import PolicySnapshot
from aclearn.types import PolicyVersion
from compress import RefusedTensors
from services.evaluator.core import Evaluator
from services.evaluator.play import Played
from services.evaluator.trainer_client import ToJudge
from tests.support.clock import Clock

_RETURNS = [1.0, 2.0, 3.0, 6.0]
# squares 4, 1, 0, 9 over n - 1 = 3; the error of the mean of 4 is half of the deviation
_ERROR = (14 / 3) ** 0.5 / 2


class Stage:
    """An evaluator with stand-ins; a version is ready every `every` steps of its clock.

    A step of the environments takes `step_s` seconds, all of the CPU.
    """

    def __init__(self, *, every_s=None, cpu_share=1.0, step_s=0.5, artifact=None) -> None:
        self.clock, self.cpu = Clock(), Clock(0.0)
        self.told: list[tuple[PolicyVersion, float]] = []
        self.asked: list[tuple[PolicyVersion, float]] = []
        self.played: list[object] = []
        self.answer: bool | None = True  # None: the trainer is away
        self.version, self.refuse = 0, False
        self.step_s = step_s
        self.evaluator = Evaluator(
            self,
            {"default": SimpleNamespace(load=self._load)},
            self._play,
            judged=["default"],
            every_s=every_s,
            cpu_share=cpu_share,
            artifacts={"default": artifact} if artifact else {},
            clock=self.clock,
            cpu_clock=self.cpu,
        )

    def newer_than(self, known: PolicyVersion) -> ToJudge | None:
        self.asked.append((known, self.clock.now))
        if self.version <= known.version:
            return None
        weights = {"w": np.full(1, self.version, np.float32)}
        return ToJudge(PolicyVersion(0, self.version), 100 * self.version, {"default": weights})

    def tell(self, at: PolicyVersion, return_mean: float) -> bool | None:
        if self.answer is not None:
            self.told.append((at, return_mean))
        return self.answer

    def _load(self, tensors):
        if self.refuse:
            raise RefusedTensors("weights['w']: not finite")
        return tensors["w"][0]

    def _play(self, policies) -> Iterator[dict[str, Played]]:
        self.played.append(policies["default"])
        for n in range(1, 1 + len(_RETURNS)):
            self.clock.now += self.step_s
            self.cpu.now += self.step_s
            yield {"default": Played(_RETURNS[:n], [5] * n)}

    def steps(self, count: int, *, beats: bool = True, gap_s: float = 0.0) -> None:
        for _ in range(count):
            self.evaluator.step(0.0)
            self.clock.now += gap_s
            if beats:
                self.gauges = self.evaluator.heartbeat().gauges


def test_a_version_is_judged_by_its_mean_with_its_error_version_steps_and_age() -> None:
    stage = Stage()
    stage.version = 7
    stage.steps(6)
    assert stage.told == [(PolicyVersion(0, 7), 3.0)]
    shown = {name: stage.gauges[name] for name in ("return_mean", "version", "env_steps")}
    assert shown == {"return_mean": 3.0, "version": 7.0, "env_steps": 700.0}
    assert stage.gauges["return_standard_error"] == pytest.approx(_ERROR)
    assert (stage.gauges["episodes"], stage.gauges["seconds"]) == (4.0, 2.0)
    stage.clock.now += 10.0
    assert stage.evaluator.heartbeat().gauges["age_s"] == 12.0  # since it was given


def test_the_trainer_is_told_first_and_the_next_begins_only_when_the_monitor_knows() -> None:
    stage = Stage()
    stage.version, stage.answer = 1, None
    stage.steps(8)
    assert stage.evaluator.heartbeat().counters["evaluations"] == 0  # the trainer is away
    stage.answer = True
    stage.version = 2
    stage.steps(5, beats=False)
    assert stage.told == [(PolicyVersion(0, 1), 3.0)] and stage.played == [1.0]
    stage.steps(3)
    assert stage.played == [1.0, 2.0]


def test_the_same_version_is_not_judged_again() -> None:
    stage = Stage()
    stage.version = 1
    stage.steps(20)
    assert stage.told == [(PolicyVersion(0, 1), 3.0)]
    assert stage.asked[-1][0] == PolicyVersion(0, 1)


@pytest.mark.parametrize(
    ("every_s", "step_s", "begins"),
    # four steps of a half, and the interval is from start to start; beyond it without a pause
    [(10.0, 0.5, [0.0, 10.0, 20.0]), (3.0, 1.0, [0.0, 4.0, 8.0])],
)
def test_evaluations_begin_at_an_interval_or_one_after_the_other_where_they_last_longer(
    every_s, step_s, begins
) -> None:
    stage = Stage(every_s=every_s, step_s=step_s)
    begun_at, found = stage.clock.now, []
    while len(found) < 3:
        stage.version = len(found) + 1
        stage.steps(1)
        if len(stage.played) > len(found):
            found.append(stage.clock.now - step_s - begun_at)
        stage.clock.now += 0.0 if len(stage.played) > len(stage.told) else 0.125
    assert found == pytest.approx(begins, abs=0.5)


def test_it_uses_its_share_of_a_core_at_most() -> None:
    stage = Stage(cpu_share=0.25, step_s=0.5)
    stage.version = 1
    begun_at = stage.clock.now
    while not stage.told:
        stage.steps(1, gap_s=0.125)
    # after each of the four steps comes the pause that makes it 0.5 of 2 seconds
    assert 8.0 <= stage.clock.now - begun_at <= 8.5
    assert stage.cpu.now == 2.0


def test_weights_that_cannot_be_played_are_refused_and_the_next_are_judged() -> None:
    stage = Stage()
    stage.version, stage.refuse = 1, True
    stage.steps(3)
    stage.version, stage.refuse = 2, False
    stage.steps(6)
    assert stage.told == [(PolicyVersion(0, 2), 3.0)]
    assert stage.gauges["policy_refused"] == 1.0


def test_a_score_that_the_trainer_does_not_know_is_dropped_and_the_next_version_asked_for() -> None:
    stage = Stage(every_s=100.0)
    stage.version, stage.answer = 1, False
    stage.steps(6)
    assert stage.told == [(PolicyVersion(0, 1), 3.0)]
    assert "return_mean" not in stage.gauges  # the monitor does not count it
    stage.version, stage.answer = 2, True
    stage.steps(6)  # without the interval
    assert stage.gauges["version"] == 2.0
    assert stage.evaluator.heartbeat().counters["evaluations"] == 1


def _artifact(version: int, chain: str) -> PolicySnapshot:
    return PolicySnapshot("artifact", PolicyVersion(0, version), chain)


@pytest.mark.parametrize(
    ("newest", "compressed"),
    [
        (_artifact(5, "int8>onnx"), 5.0),
        (_artifact(4, "int8>onnx"), None),  # older than what is judged: it is waited for
        (_artifact(5, "fuse>onnx"), None),  # the uncompressed policy
        (None, None),
    ],
)
def test_the_artifact_of_the_version_is_played_too(newest, compressed) -> None:
    stage = Stage(artifact=lambda: newest)
    stage.version = 5
    stage.steps(40, gap_s=0.5)
    assert stage.told == [(PolicyVersion(0, 5), 3.0)]  # the judgement is of the policy itself
    assert stage.gauges.get("compressed_version") == compressed
    assert stage.gauges.get("compressed_return_mean") == (3.0 if compressed else None)
    assert len(stage.played) == (2 if compressed else 1)
    stage.version = 6
    while len(stage.told) < 2:
        stage.steps(1, gap_s=0.5)
    # it goes on, and what was measured of an artifact stays until the next one was
    assert (stage.gauges["version"], stage.gauges.get("compressed_version")) == (6.0, compressed)


@pytest.mark.parametrize(
    ("judged", "told"),
    [(["tagger"], 3.0), (["tagger", "runner"], 1.0), ([], None)],
    ids=("one counts", "both count", "none counts"),
)
def test_several_policies_have_a_mean_each_and_those_that_count_judge(judged, told) -> None:
    said: list[float] = []
    weights = {name: {"w": np.full(1, k, np.float32)} for k, name in enumerate(_RUN)}
    versions = SimpleNamespace(
        newer_than=lambda known: ToJudge(PolicyVersion(0, 4), 100, weights) if not said else None,
        tell=lambda at, mean: said.append(mean) or True,
    )

    def play(policies) -> Iterator[dict[str, Played]]:
        assert policies == {"tagger": 0.0, "runner": 1.0}
        yield {"tagger": Played(_RETURNS, [5] * 4), "runner": Played([-1.0, -1.0], [7, 7], cut=1)}

    evaluator = Evaluator(
        versions,
        dict.fromkeys(_RUN, SimpleNamespace(load=lambda tensors: tensors["w"][0])),
        play,
        judged=judged,
        every_s=1000.0,
        cpu_share=1.0,
    )
    for _ in range(3):
        evaluator.step(0.0)
    beat = evaluator.heartbeat()
    assert said == ([] if told is None else [told])
    assert beat.gauges.get("return_mean") == told
    assert (beat.gauges["version"], beat.gauges["env_steps"]) == (4.0, 100.0)
    tagger, runner = (beat.policies[name].gauges for name in _RUN)
    assert (tagger["return_mean"], runner["return_mean"]) == (3.0, -1.0)
    assert tagger["return_standard_error"] == pytest.approx(_ERROR)
    assert (tagger["cut_episodes"], runner["cut_episodes"]) == (0.0, 1.0)
    assert beat.counters["evaluations"] == 1


_RUN = ("tagger", "runner")
