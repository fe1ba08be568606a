"""The evaluator's steps: a version is asked for, played, judged and reported; no socket."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

import numpy as np

from aclearn.metrics.names import INFO
from aclearn.rollout import Executable, PolicySnapshot
from aclearn.telemetry import WaitMeter
from aclearn.types import DEFAULT_POLICY, PolicyVersion, is_compressed
from aclearn.wire import Heartbeat, PolicyNumbers
from compress import PolicyRuntime, RefusedTensors
from services.evaluator.play import Played, standard_error_of
from services.evaluator.trainer_client import ToJudge
from services.role.cpu_budget import CpuBudget, CpuShare
from services.role.metrics import RoleMetrics

_LOGGER = logging.getLogger(__name__)

#: Seconds in which a compressor makes the artifact of a version that is being judged.
_ARTIFACT_WITHIN_S = 10.0


class Versions(Protocol):
    """Where versions come from, and who is told of their worth; see `TrainerClient`."""

    def newer_than(self, known: PolicyVersion) -> ToJudge | None:
        """A version to judge that is newer; None so far."""

    def tell(self, at: PolicyVersion, return_mean: float) -> bool | None:
        """Whether the trainer knows the version; None before its answer."""


@dataclass(frozen=True)
class Score:
    """The returns of a policy's episodes.

    Attributes:
        standard_error: of the mean; 0 of one episode.
        cut: number of episodes that were cut and count with their returns so far.
        info: means of the figures of `env.info_metrics`.
    """

    mean: float
    standard_error: float
    episodes: int
    cut: int
    info: Mapping[str, float]

    @classmethod
    def of(cls, played: Played) -> Score:
        """The score of the episodes."""
        returns = played.returns
        return cls(
            float(np.mean(returns)),
            standard_error_of(returns),
            len(returns),
            played.cut,
            played.info_means,
        )

    @property
    def gauges(self) -> dict[str, float]:
        """It as gauges of a heartbeat."""
        return {
            "return_mean": self.mean,
            "return_standard_error": self.standard_error,
            "episodes": float(self.episodes),
            "cut_episodes": float(self.cut),
            **{f"{INFO}{name}": mean for name, mean in self.info.items()},
        }


def judged_mean(scores: Mapping[str, Score], judged: Sequence[str]) -> dict[str, float]:
    """The mean over the judged policies' means, and at most its standard error; {} without any.

    The returns of agents that play together are not independent: the errors are as if they rose
    and fell together.
    """
    if not judged:
        return {}
    return {
        "return_mean": fmean(scores[name].mean for name in judged),
        "return_standard_error": fmean(scores[name].standard_error for name in judged),
    }


class Evaluator:
    """Evaluates one version after another, a step of all environments at a time.

    An evaluation begins `every_s` after the one before began, or when that has ended, if it lasted
    longer. Without an interval the trainer decides which version is next. The trainer is told
    the mean first, then the monitor: what the monitor decides is about a version that the trainer
    knows as judged. The score of a trainer that has died meanwhile is dropped: no checkpoint can
    have its weights.

    Several policies play together. The mean that is told is over the judged ones; without any the
    trainer is told nothing, and no checkpoint becomes the best.

    Args:
        runtimes: of each policy.
        play: the episodes so far of these policies, after each step, until there are enough.
        judged: names of the policies of which the mean decides.
        artifacts: policy → its newest compressed one that acts, None so far; {}: nothing is
            compressed.
        env_faults: number of the environments' faults so far.
        whole: whether a step plays a whole evaluation, as where the trainer learns a batch in one.
        hasten: called once a judgement is known: the monitor is to hear of it now.

    Attributes:
        meter: of the waits and parts of its work.
    """

    def __init__(
        self,
        versions: Versions,
        runtimes: Mapping[str, PolicyRuntime],
        play: Callable[[Mapping[str, Executable]], Iterator[Mapping[str, Played]]],
        *,
        judged: Sequence[str],
        every_s: float | None,
        cpu_share: float,
        artifacts: Mapping[str, Callable[[], PolicySnapshot | None]] | None = None,
        env_faults: Callable[[], int] = lambda: 0,
        whole: bool = False,
        hasten: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._versions, self._runtimes, self._play = versions, runtimes, play
        self._judged, self._artifacts = judged, artifacts or {}
        self._every_s, self._env_faults = every_s, env_faults
        self._whole, self._hasten = whole, hasten
        self._clock, self._cpu_clock = clock, cpu_clock
        self._budget = CpuBudget(every_s=0.0, cpu_share=cpu_share)
        self._share = CpuShare(clock, cpu_clock)
        self.meter = WaitMeter()
        self._metrics = RoleMetrics(self.meter)
        self._known = PolicyVersion()
        self._evaluations = self._refused = 0
        self._given_at = clock()
        self._result: dict[str, float] = {}
        self._compressed: dict[str, float] = {}
        #: Policy → its part of both; empty where there is one.
        self._of_policies: dict[str, dict[str, float]] = {}
        self._is_told = True
        self._flow = self._evaluate_all()

    def step(self, timeout_s: float) -> None:
        """Play for about `timeout_s`, one step at least or a whole evaluation, or wait so long.

        Raises:
            EnvironmentFailure: the environments have failed too often.
        """
        now = self._clock()
        if not self._budget.due(now, self._cpu_clock()):
            with self.meter.waiting("its share of a core"):
                time.sleep(timeout_s)
            return
        self._budget.begin(now, self._cpu_clock())
        with self.meter.part("evaluate"):
            while (waits_for := next(self._flow)) is None and (
                self._whole or self._clock() < now + timeout_s
            ):
                pass
        self._budget.done(self._cpu_clock())
        if waits_for is not None:
            with self.meter.waiting(waits_for):
                time.sleep(timeout_s)

    def heartbeat(self) -> Heartbeat:
        """The newest judgement and the evaluator's own numbers."""
        self._is_told = True
        result = self._result | self._compressed
        if result:
            result["age_s"] = self._clock() - self._given_at
        return self._metrics.heartbeat(
            counters={"evaluations": self._evaluations},
            gauges={
                **result,
                "env_faults": float(self._env_faults()),
                "policy_refused": float(self._refused),
                "cpu_share": self._share.take(),
            },
            policies={
                name: PolicyNumbers(gauges=gauges) for name, gauges in self._of_policies.items()
            },
        )

    def _evaluate_all(self) -> Generator[str | None, None, None]:
        """Evaluate without end; yields after each step what it waits for, None while it works."""
        due_at = self._clock()
        while True:
            # each judgement reaches the monitor: it counts them
            while not self._is_told or self._clock() < due_at:
                yield "the next evaluation"
            while (given := self._versions.newer_than(self._known)) is None:
                yield "weights"
            begun_at = self._clock()
            due_at = begun_at + (self._every_s or 0.0)
            self._known = at = given.at
            try:
                policies = {
                    name: runtime.load(given.tensors[name])
                    for name, runtime in self._runtimes.items()
                }
            except RefusedTensors as error:
                self._refused += 1
                _LOGGER.error("event=policy_refused version=%s reason=%r", at, str(error))
                continue
            scores = yield from self._score(policies)
            mean = judged_mean(scores, self._judged)
            known: bool | None = True
            while mean and (known := self._versions.tell(at, mean["return_mean"])) is None:
                yield "the trainer"
            if not known:
                _LOGGER.warning("event=evaluation_dropped version=%s", at)
                due_at = self._clock()
                continue
            self._evaluations += 1
            self._given_at, self._is_told = begun_at, False
            self._hasten()
            first, several = next(iter(scores.values())), scores.keys() != {DEFAULT_POLICY}
            self._result = {
                **({"episodes": float(first.episodes)} if several else first.gauges),
                **mean,
                "generation": float(at.generation),
                "version": float(at.version),
                "env_steps": float(given.env_steps),
                "seconds": self._clock() - begun_at,
            }
            if several:
                self._of_policies = {name: score.gauges for name, score in scores.items()}
            _LOGGER.info(
                "event=evaluated version=%s env_steps=%d %s",
                *(at, given.env_steps, words_of_scores(scores)),
            )
            if self._artifacts:
                yield from self._evaluate_compressed(at, begun_at)

    def _evaluate_compressed(
        self, at: PolicyVersion, begun_at: float
    ) -> Generator[str | None, None, None]:
        """Add the score of the artifacts of this version, or of a newer one."""
        give_up_at = self._clock() + _ARTIFACT_WITHIN_S
        newest: dict[str, PolicySnapshot] = {}
        while len(newest) < len(self._artifacts):
            for name, artifact in self._artifacts.items():
                if (found := artifact()) is not None and found.at >= at:
                    newest[name] = found
                elif self._clock() >= give_up_at:
                    self._compressed = {}
                    return
                else:
                    yield "artifacts"
                    break
        if not any(is_compressed(each.chain) for each in newest.values()):
            self._compressed = {}  # the ladder's uncompressed policy, which was played
            return
        scores = yield from self._score({name: each.executable for name, each in newest.items()})
        self._is_told = False
        version = float(min(each.at for each in newest.values()).version)
        self._compressed = {
            **_compressed(judged_mean(scores, self._judged)),
            "compressed_version": version,
        }
        for name, gauges in self._of_policies.items():
            gauges |= _compressed(judged_mean(scores, [name]))
        self._result["seconds"] = self._clock() - begun_at

    def _score(self, policies: Mapping[str, Executable]) -> Generator[None, None, dict[str, Score]]:
        playing = self._play(policies)
        played = next(playing)
        yield
        for played in playing:  # noqa: B007 - the last one is the whole
            yield
        return {name: Score.of(each) for name, each in played.items()}


def words_of_scores(scores: Mapping[str, Score]) -> str:
    """Return and standard error for the log; of several policies with their names."""
    words = {name: f"{s.mean:g} standard_error={s.standard_error:g}" for name, s in scores.items()}
    if len(words) == 1:
        return f"return={next(iter(words.values()))}"
    return " ".join(f"policy={name} return={each}" for name, each in words.items())


def _compressed(gauges: Mapping[str, float]) -> dict[str, float]:
    return {f"compressed_{name}": value for name, value in gauges.items()}
