"""The evaluator's steps: a version is asked for, played, judged and reported; no socket."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from aclearn.metrics.names import INFO
from aclearn.rollout import Executable, PolicySnapshot
from aclearn.telemetry import WaitMeter
from aclearn.types import PolicyVersion, is_compressed
from aclearn.wire import Heartbeat, WeightsToJudge
from compress import PolicyRuntime, RefusedTensors
from services.evaluator.play import Played, standard_error_of
from services.role.cpu_budget import CpuBudget, CpuShare
from services.role.metrics import RoleMetrics

_LOGGER = logging.getLogger(__name__)

#: Seconds in which a compressor makes the artifact of a version that is being judged.
_ARTIFACT_WITHIN_S = 10.0


class Versions(Protocol):
    """Where versions come from, and who is told of their worth; see `TrainerClient`."""

    def newer_than(self, known: PolicyVersion) -> WeightsToJudge | None:
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


class Evaluator:
    """Evaluates one version after another, a step of all environments at a time.

    An evaluation begins `every_s` after the one before began, or when that has ended, if it lasted
    longer. Without an interval the trainer decides which version is next. The trainer is told
    the mean first, then the monitor: what the monitor decides is about a version that the trainer
    knows as judged. The score of a trainer that has died meanwhile is dropped: no checkpoint can
    have its weights.

    Args:
        play: the episodes so far of a policy, after each step, until there are enough.
        artifact: the newest compressed policy that acts, None so far; None: nothing is compressed.
        env_faults: number of the environments' faults so far.

    Attributes:
        meter: of the waits and parts of its work.
    """

    def __init__(
        self,
        versions: Versions,
        runtime: PolicyRuntime,
        play: Callable[[Executable], Iterator[Played]],
        *,
        every_s: float | None,
        cpu_share: float,
        artifact: Callable[[], PolicySnapshot | None] | None = None,
        env_faults: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._versions, self._runtime, self._play = versions, runtime, play
        self._every_s, self._artifact, self._env_faults = every_s, artifact, env_faults
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
        self._is_told = True
        self._flow = self._evaluate_all()

    def step(self, timeout_s: float) -> None:
        """Play for about `timeout_s`, one step at least, or wait so long.

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
            while (waits_for := next(self._flow)) is None and self._clock() < now + timeout_s:
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
            self._known = at = PolicyVersion(given.generation, given.version)
            try:
                policy = self._runtime.load(given.tensors)
            except RefusedTensors as error:
                self._refused += 1
                _LOGGER.error("event=policy_refused version=%s reason=%r", at, str(error))
                continue
            score = yield from self._score(policy)
            while (known := self._versions.tell(at, score.mean)) is None:
                yield "the trainer"
            if not known:
                _LOGGER.warning("event=evaluation_dropped version=%s", at)
                due_at = self._clock()
                continue
            self._evaluations += 1
            self._given_at, self._is_told = begun_at, False
            self._result = {
                "return_mean": score.mean,
                "return_standard_error": score.standard_error,
                "episodes": float(score.episodes),
                "cut_episodes": float(score.cut),
                "generation": float(at.generation),
                "version": float(at.version),
                "env_steps": float(given.env_steps),
                "seconds": self._clock() - begun_at,
                **{f"{INFO}{name}": mean for name, mean in score.info.items()},
            }
            _LOGGER.info(
                "event=evaluated version=%s env_steps=%d return=%g standard_error=%g",
                *(at, given.env_steps, score.mean, score.standard_error),
            )
            if self._artifact is not None:
                yield from self._evaluate_compressed(at, begun_at)

    def _evaluate_compressed(
        self, at: PolicyVersion, begun_at: float
    ) -> Generator[str | None, None, None]:
        """Add the score of the artifact of this version, or of a newer one."""
        assert self._artifact is not None
        give_up_at = self._clock() + _ARTIFACT_WITHIN_S
        while (artifact := self._artifact()) is None or artifact.at < at:
            if self._clock() >= give_up_at:
                self._compressed = {}
                return
            yield "artifacts"
        if not is_compressed(artifact.chain):
            self._compressed = {}  # the ladder's uncompressed policy, which was played
            return
        score = yield from self._score(artifact.executable)
        self._is_told = False
        self._compressed = {
            "compressed_return_mean": score.mean,
            "compressed_return_standard_error": score.standard_error,
            "compressed_version": float(artifact.at.version),
        }
        self._result["seconds"] = self._clock() - begun_at

    def _score(self, policy: Executable) -> Generator[None, None, Score]:
        playing = self._play(policy)
        played = next(playing)
        yield
        for played in playing:  # noqa: B007 - the last one is the whole
            yield
        return Score.of(played)
