"""The compressor's requests to the trainer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from aclearn.types import DEFAULT_POLICY, PolicyVersion, Visited
from aclearn.wire import (
    ErrorReply,
    Message,
    NoNewerWeights,
    ObservationsRequest,
    RecentObservations,
    Weights,
    WeightsRequest,
)
from services.role.monitor_client import MonitorClient
from services.role.request_client import PeerLink, RequestClient
from services.role.requests import RetryPolicy

_LOGGER = logging.getLogger(__name__)

#: Least time between two requests for weights.
_ASK_EVERY_S = 0.02
_RETRY = RetryPolicy(answer_within_s=5.0, silent_after_s=5.0, reached_within_s=3.0)
_WEIGHTS, _OBSERVATIONS = "weights", "observations"


class TrainerClient:
    """Requests the newest weights of a policy and, at intervals, observations from the trainer."""

    def __init__(
        self,
        link: PeerLink,
        *,
        observations: int,
        observations_every_s: float,
        policy: str = DEFAULT_POLICY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = RequestClient[str](link, _RETRY, self._take, clock)
        self._clock, self._policy = clock, policy
        self._count, self._every_s = observations, observations_every_s
        self._asked_weights = self._asked_observations = float("-inf")
        self._weights: Weights | None = None
        self._visited = Visited()

    def poll(
        self, monitor: MonitorClient, known: PolicyVersion, *, wanted: bool
    ) -> tuple[Weights | None, Visited]:
        """Received weights newer than `known`, and received observations; requests more.

        Args:
            known: the newest version that was compressed.
        """
        self._client.poll(monitor)
        weights, self._weights = self._weights, None
        visited, self._visited = self._visited, Visited()
        if weights is not None and PolicyVersion(weights.generation, weights.version) <= known:
            weights = None
        now, waiting = self._clock(), self._client.requests
        pause = now - self._asked_weights > _ASK_EVERY_S
        if wanted and weights is None and pause and _WEIGHTS not in waiting:
            self._asked_weights = now
            self._client.ask(
                _WEIGHTS, WeightsRequest(known.generation, known.version, self._policy)
            )
        if now - self._asked_observations >= self._every_s and _OBSERVATIONS not in waiting:
            self._asked_observations = now
            self._client.ask(_OBSERVATIONS, ObservationsRequest(self._count, self._policy))
        return weights, visited

    def _take(self, message: Message) -> str | None:
        if isinstance(message, RecentObservations):
            self._visited = Visited(
                message.observations, message.masks, message.length, message.valid, message.state
            )
            return _OBSERVATIONS
        if isinstance(message, Weights):
            self._weights = message
        elif not isinstance(message, NoNewerWeights | ErrorReply):
            _LOGGER.warning("event=unexpected_message kind=%s", type(message).__name__)
        return _WEIGHTS
