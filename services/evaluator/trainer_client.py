"""The evaluator's requests to the trainer: versions to judge, and what they are worth."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from aclearn.types import PolicyVersion
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

_RETRY = RetryPolicy(answer_within_s=5.0)
_WEIGHTS, _JUDGEMENT = "weights", "judgement"


class TrainerClient:
    """Asks the trainer for a version to judge, and tells it the judgement.

    Args:
        ask_every_s: least time between two requests for a version.
    """

    def __init__(
        self,
        link: PeerLink,
        monitor: MonitorClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        ask_every_s: float = 0.1,
    ) -> None:
        self._client = RequestClient[str](link, _RETRY, self._take, clock)
        self._monitor, self._clock, self._ask_every_s = monitor, clock, ask_every_s
        self._next_ask = clock()
        self._given: WeightsToJudge | None = None
        self._told: Judgement | None = None
        self._knows: bool | None = None

    def newer_than(self, known: PolicyVersion) -> WeightsToJudge | None:
        """The version that the trainer has set aside, if it is newer; asks for one."""
        self._client.poll(self._monitor)
        given, self._given = self._given, None
        if given is not None and PolicyVersion(given.generation, given.version) > known:
            return given
        now = self._clock()
        if _WEIGHTS not in self._client.requests and now >= self._next_ask:
            self._next_ask = now + self._ask_every_s
            self._client.ask(_WEIGHTS, JudgeRequest(known.generation, known.version))
        return None

    def tell(self, at: PolicyVersion, return_mean: float) -> bool | None:
        """Tell the trainer a judgement; whether it knows the version. Call it while it is None."""
        judgement = Judgement(at.generation, at.version, return_mean)
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
            self._given = message
        elif not isinstance(message, NoNewerWeights | ErrorReply):
            _LOGGER.warning("event=unexpected_message kind=%s", type(message).__name__)
        return _WEIGHTS
