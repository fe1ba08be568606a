"""The evaluator's requests to the trainer: versions to judge, and what they are worth."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from aclearn.types import DEFAULT_POLICY, PolicyVersion
from aclearn.wire import (
    ErrorReply,
    Judgement,
    JudgementReply,
    JudgeRequest,
    Message,
    NoNewerWeights,
    WeightsToJudge,
)
from services.role.monitor_client import MonitorClient
from services.role.request_client import PeerLink, RequestClient
from services.role.requests import RetryPolicy

_LOGGER = logging.getLogger(__name__)

_RETRY = RetryPolicy(answer_within_s=5.0, silent_after_s=5.0, reached_within_s=3.0)
_WEIGHTS, _JUDGEMENT = "weights", "judgement"


@dataclass(frozen=True)
class ToJudge:
    """A version to judge.

    Attributes:
        env_steps: agent steps of the run until then.
        tensors: policy → its weights.
    """

    at: PolicyVersion
    env_steps: int
    tensors: Mapping[str, Mapping[str, NDArray[Any]]]


class TrainerClient:
    """Asks the trainer for a version to judge, and tells it the judgement.

    Args:
        policies: names of the run's policies, of which a version has the weights of all.
        ask_every_s: least time between two requests for a version.
    """

    def __init__(
        self,
        link: PeerLink,
        monitor: MonitorClient,
        policies: Sequence[str] = (DEFAULT_POLICY,),
        *,
        clock: Callable[[], float] = time.monotonic,
        ask_every_s: float = 0.1,
    ) -> None:
        self._client = RequestClient[str](link, _RETRY, self._take, clock)
        self._monitor, self._clock, self._ask_every_s = monitor, clock, ask_every_s
        self._policies = tuple(policies)
        self._next_ask = clock()
        #: Policy → its weights of the version that the trainer has set aside.
        self._given: dict[str, WeightsToJudge] = {}
        self._told: Judgement | None = None
        self._knows: bool | None = None

    def newer_than(self, known: PolicyVersion) -> ToJudge | None:
        """The version that the trainer has set aside, if it is newer; asks for one."""
        self._client.poll(self._monitor)
        whole = len(self._given) == len(self._policies)
        first = self._given.get(self._policies[0])
        if whole and first is not None:
            given, self._given = self._given, {}
            if (at := _version(first)) > known:
                tensors = {name: each.tensors for name, each in given.items()}
                return ToJudge(at, first.env_steps, tensors)
        now = self._clock()
        if _WEIGHTS not in self._client.requests and now >= self._next_ask:
            missing = next(name for name in self._policies if name not in self._given)
            if self._given:  # of the same version: the one that is newer than its predecessor
                at = _version(next(iter(self._given.values())))
                known = PolicyVersion(at.generation, at.version - 1)
            else:
                self._next_ask = now + self._ask_every_s
            self._client.ask(_WEIGHTS, JudgeRequest(known.generation, known.version, missing))
        return None

    def tell(self, at: PolicyVersion, return_mean: float) -> bool | None:
        """Tell the trainer a judgement; whether it knows the version. Call it while it is None."""
        judgement = Judgement(at.generation, at.version, return_mean, self._policies[0])
        if judgement != self._told:
            self._told, self._knows = judgement, None
            self._client.ask(_JUDGEMENT, judgement)
        self._client.poll(self._monitor)
        return self._knows

    def _take(self, message: Message) -> str | None:
        if isinstance(message, JudgementReply):
            self._knows = message.known
            return _JUDGEMENT
        if isinstance(message, WeightsToJudge):
            if any(_version(each) != _version(message) for each in self._given.values()):
                self._given = {}  # the trainer has set another one aside: never a mixture
            self._given[message.policy] = message
        elif isinstance(message, NoNewerWeights):
            self._given = {}
        elif not isinstance(message, ErrorReply):
            _LOGGER.warning("event=unexpected_message kind=%s", type(message).__name__)
        return _WEIGHTS


def _version(weights: WeightsToJudge) -> PolicyVersion:
    return PolicyVersion(weights.generation, weights.version)
